// Chunk buffer of 2 tags and 8 chunks of 64 bytes: answers leave whole, in the order of their reservations, word by word
// as they came, whatever the host sends and whenever. One that is not complete may be given up: it ends with one more beat,
// an error. No tag is reserved for which words may still come, and such words change nothing. Tags and chunks are counted
// right and all come back. Two tags show all that can meet: the answer that leaves and the one that comes behind it, a tag
// in use and the same one in its next lap, a tag that rests beside one in use; eight chunks hold one answer of 512 bytes
// or parts of several.
//
// The model knows only the ports. It numbers answers as they are reserved (f_reserved) and as they leave (f_out), modulo
// 4, which is more than the 3 that are ever inside: 2 with a tag, and one whose last word is at the head. The solver
// chooses a tag, f_tag, a number, f_number, and a word, f_index. The model follows how much has come for this tag. Of the
// answer with this number, if it has this tag, the word is remembered as it comes and compared when it leaves, with 8 bits
// of its data standing for all: the block looks at none.
//
// Nothing is assumed: the host may send any word for any tag in any cycle, and reset may come at any time. What compares
// the time of the oldest read with `limit` is cut off, and the solver chooses what it says, f_is_overdue, in each cycle: so
// the rest holds whenever a read is given up. That the limit is kept is shown by the tests of the block.

// module ring_1
    wire [1:0] f_head = head;
    wire [1:0] f_tail = tail;

// module ring_3
    wire [3:0] f_head = head;
    wire [3:0] f_tail = tail;

// module memory_place_3_3
    wire [13:0] f_words = {words[1], words[0]};

// module memory_progress_3
    wire [11:0] f_words = {words[1], words[0]};

// module memory_order_3_3_2
    wire [21:0] f_words = {words[1][10:0], words[0][10:0]};

// module memory_bool
    wire [1:0] f_words = {words[1], words[0]};

// module memory_beat_512_7
    wire [2:0] f_address;
    wire [520:0] f_whole = words[f_address];
    wire [16:0] f_word = {f_whole[520:512], f_whole[7:0]};
    wire [7:0] f_lasts = {words[7][519], words[6][519], words[5][519], words[4][519],
                          words[3][519], words[2][519], words[1][519], words[0][519]};

// module arrivals
    wire [1:0] f_cleared = cleared;
    wire f_is_held = is_held;
    wire f_held_tag = held[521];
    wire f_is_same_tag = is_same_tag;
    wire f_was_written = was_written;
    wire [5:0] f_written = written;
    wire [5:0] f_before = before_value;
    wire [6:0] f_place = places_read_data;
    wire f_is_open = is_open;

// module dut
    (* anyconst *) reg f_tag;
    (* anyconst *) reg [1:0] f_number;
    (* anyconst *) reg [2:0] f_index;

    // Cycles since reset, up to the 2 in which the tables are cleared.
    reg [1:0] f_age = 0;
    reg [1:0] f_reserved = 0;
    reg [1:0] f_out = 0;
    // Words that have left of the answer whose turn it is.
    reg [2:0] f_out_index = 0;
    // Lengths of the answers inside, and their sum.
    reg [3:0] f_lengths [0:3];
    reg [4:0] f_chunks = 0;
    // Of the answer that had the tag last, the chosen one or another: its number, what has come, that more of it may, and
    // that it was given up.
    reg [1:0] f_holder = 0;
    reg f_waits = 0;
    reg f_rests = 0;
    reg [3:0] f_count = 0;
    reg [2:0] f_last_index = 0;
    reg f_failed = 0;
    // Of the newest answer with the number: it has the tag, its cookie, how many of its words have come in time, the chosen
    // word as it is to leave, and that it was given up.
    reg f_is_chosen = 0;
    reg [1:0] f_cookie = 0;
    reg [3:0] f_total = 0;
    reg [16:0] f_word = 0;
    reg f_is_lost = 0;
    // Words for the tag one and two cycles ago, and whether they were waited for.
    reg [1:0] f_came = 0;
    reg [1:0] f_awaited = 0;
    // The tag rested one and two cycles ago.
    reg [1:0] f_rested = 0;
    reg [1:0] f_quarantined = 0;
    // There was a limit one and two cycles ago.
    reg [1:0] f_limited = 0;
    // Cycles in which the word whose turn it is had come, and was not offered.
    reg [2:0] f_late = 0;
    // Cycles in which no tag was needed, up to 3.
    reg [1:0] f_idle = 0;

    wire f_reserves = reserve && fits;
    wire f_opens = f_reserves && tag == f_tag;
    wire f_comes = arrival_valid && f_age == 2 && arrival_value[521] == f_tag;
    wire f_takes = f_comes && f_waits;
    wire f_is_full = f_count == {1'b0, f_last_index};
    wire f_ends = arrival_value[519] || f_is_full;
    wire f_fails = f_failed || arrival_value[520] || (f_is_full && !arrival_value[519]);
    wire f_leaves = tx_valid && tx_ready;
    wire f_is_last = tx_beat[519];
    wire [1:0] f_inside = f_reserved - f_out;
    // The last word at the head has given its tag and chunks back.
    wire f_is_back = tx_valid && f_is_last;
    // All that has come has left, more is to come, and yet there is a beat: the answer is given up.
    wire f_gives_up = tx_valid && f_out == f_holder && f_waits && !f_rests && {1'b0, f_out_index} == f_count;
    wire f_is_resting = f_rests || f_gives_up;
    wire f_holds_chosen = f_is_chosen && f_holder == f_number;
    wire f_is_turn = f_inside != 0 && f_is_chosen && f_out == f_number;
    wire f_is_due = f_is_turn && f_out_index < f_total && !tx_valid;
    wire f_was_given_up = f_is_lost || (f_gives_up && f_holds_chosen);
    wire f_is_idle = f_age == 2 && f_inside == f_is_back && quarantined == 0;
    wire f_has_room = f_age == 2 && tags_used < 2 && {1'b0, chunks_used} + {2'b0, last_index} + 5'd1 <= 8;

    always @(posedge clock)
        if (reset) begin
            f_age <= 0;
            f_reserved <= 0;
            f_out <= 0;
            f_out_index <= 0;
            f_chunks <= 0;
            f_waits <= 0;
            f_rests <= 0;
            f_is_chosen <= 0;
            f_is_lost <= 0;
            f_came <= 0;
            f_rested <= 0;
            f_quarantined <= 0;
            f_limited <= 0;
            f_late <= 0;
            f_idle <= 0;
        end else begin
            if (f_age != 2) f_age <= f_age + 1;
            f_came <= {f_came[0], f_comes};
            f_awaited <= {f_awaited[0], f_takes};
            f_rested <= {f_rested[0], f_is_resting};
            f_quarantined <= quarantined;
            f_limited <= {f_limited[0], limit != 0};
            f_late <= f_is_due ? f_late + 1 : 0;
            f_idle <= !f_is_idle ? 0 : f_idle == 3 ? 3 : f_idle + 1;
            f_rests <= f_is_resting && !(f_takes && f_ends);
            if (f_gives_up && f_holds_chosen) f_is_lost <= 1;
            if (f_takes) begin
                f_waits <= !f_ends;
                f_count <= f_count + 1;
                f_failed <= f_fails;
                if (f_holds_chosen && !f_is_resting) begin
                    f_total <= f_total + 1;
                    if (f_count == {1'b0, f_index}) f_word <= {f_fails, f_ends, arrival_value[518:512], arrival_value[7:0]};
                end
            end
            if (f_reserves) begin
                f_reserved <= f_reserved + 1;
                f_lengths[f_reserved] <= {1'b0, last_index} + 4'd1;
            end
            if (f_reserves && f_reserved == f_number) begin
                f_is_chosen <= f_opens;
                f_is_lost <= 0;
                f_cookie <= cookie;
                f_total <= 0;
            end
            if (f_opens) begin
                f_holder <= f_reserved;
                f_waits <= 1;
                f_count <= 0;
                f_last_index <= last_index;
                f_failed <= 0;
            end
            if (f_leaves) begin
                f_out_index <= f_is_last ? 3'd0 : f_out_index + 3'd1;
                if (f_is_last) f_out <= f_out + 1;
            end
            f_chunks <= f_chunks + (f_reserves ? {2'b0, last_index} + 5'd1 : 5'd0)
                                 - (f_leaves && f_is_last ? {1'b0, f_lengths[f_out]} : 5'd0);
        end

    always @(*) begin
        // What leaves was reserved, and of each answer only words that have come.
        if (tx_valid) assert (f_inside != 0);
        if (tx_valid && f_is_turn && !f_was_given_up) assert (f_out_index < f_total);
        // It is the next word in order, just as it came. Its marks are those that the host gave, but for the answer that
        // is too long: so each answer ends where it should, and the next one begins behind it.
        if (tx_valid && f_is_turn) assert (tx_beat[522:521] == f_cookie);
        if (tx_valid && f_is_turn && !f_was_given_up && f_out_index == f_index)
            assert ({tx_beat[520:512], tx_beat[7:0]} == f_word);
        // An answer that is given up ends with an error, behind all that has come of it.
        if (tx_valid && f_is_turn && f_was_given_up)
            assert (tx_beat[520] && f_is_last && {1'b0, f_out_index} == f_total);
        // Without a limit none is.
        if (f_gives_up) assert (f_limited[1]);
        // Once it has come and it is its turn, it is offered within 4 cycles.
        if (f_is_due) assert (f_late <= 2);
        // No answer is given a tag for which words of another one may come.
        if (f_opens) assert (!f_waits);
        // A word is reported exactly when no answer waited for it, in time or late.
        if (f_came[1]) assert (is_unexpected == !f_awaited[1]);
        // Tags and chunks in use are those of the answers inside, and all come back.
        assert (tags_used >= f_inside - f_is_back);
        if (f_is_idle && f_idle == 3) assert (tags_used == 0);
        assert (chunks_used == f_chunks - (f_is_back ? {1'b0, f_lengths[f_out]} : 5'd0));
        if (f_inside == 0) assert (chunks_used == 0);
        // There is room when there is, but for the tag that rests, and a cycle after one begins to or ends.
        if (fits) assert (f_has_room && !(tag == f_tag && f_is_resting));
        if (f_has_room && tag == f_tag && !f_is_resting && f_rested == 0 && quarantined == f_quarantined) assert (fits);
        // Tags that rest are counted: one of two is half.
        if (f_rests) assert (quarantined != 0);
        assert (has_lost_half == (quarantined != 0));
    end

    // An offer that is not taken stays as it is.
    reg f_stalled = 0;
    reg [18:0] f_offered;
    always @(posedge clock) begin
        f_stalled <= !reset && tx_valid && !tx_ready;
        f_offered <= {tx_beat[522:512], tx_beat[7:0]};
    end
    always @(*) if (f_stalled) assert (tx_valid && {tx_beat[522:512], tx_beat[7:0]} == f_offered);

    // The rest are invariants, which make the induction go through. They look inside.
    (* hierconn *) wire [1:0] \tags.f_head ;
    (* hierconn *) wire [1:0] \tags.f_tail ;
    (* hierconn *) wire [3:0] \chunks.f_head ;
    (* hierconn *) wire [3:0] \chunks.f_tail ;
    (* hierconn *) wire [13:0] \arrivals.places.f_words ;
    (* hierconn *) wire [11:0] \arrivals.table_instance.f_words ;
    (* hierconn *) wire [11:0] \progress.f_words ;
    (* hierconn *) wire [21:0] \orders.f_words ;
    (* hierconn *) wire [1:0] \laps.f_words ;
    (* hierconn *) wire [1:0] \quarantine.of_arrivals.f_words ;
    (* hierconn *) wire [1:0] \quarantine.of_reads.f_words ;
    (* hierconn *) wire [2:0] \memory.f_address ;
    (* hierconn *) wire [16:0] \memory.f_word ;
    (* hierconn *) wire [7:0] \memory.f_lasts ;
    (* hierconn *) wire [1:0] \arrivals.f_cleared ;
    (* hierconn *) wire \arrivals.f_is_held ;
    (* hierconn *) wire \arrivals.f_held_tag ;
    (* hierconn *) wire \arrivals.f_is_same_tag ;
    (* hierconn *) wire \arrivals.f_was_written ;
    (* hierconn *) wire [5:0] \arrivals.f_written ;
    (* hierconn *) wire [5:0] \arrivals.f_before ;
    (* hierconn *) wire [6:0] \arrivals.f_place ;
    (* hierconn *) wire \arrivals.f_is_open ;
    wire [1:0] f_held = \quarantine.of_reads.f_words ;

    // While the tables are being cleared, nothing is inside.
    integer f_i;
    always @(*) begin
        assert (f_age == \arrivals.f_cleared );
        assert (f_age <= 2 && tags_level <= 2);
        assert (\progress.f_words == \arrivals.table_instance.f_words );
        assert (f_held == \quarantine.of_arrivals.f_words || f_age != 2);
        if (f_age != 2) begin
            assert (\tags.f_head == 0 && \tags.f_tail == 0);
            assert (\chunks.f_head == 0 && \chunks.f_tail == 0);
            assert (f_inside == 0 && f_out_index == 0 && !f_waits && !f_rests && !f_is_chosen && f_came == 0);
            assert (! \arrivals.f_is_held && !head_valid && !overdue && !has_lost && quarantined == 0);
            for (f_i = 0; f_i < 2; f_i = f_i + 1) if (f_i < f_age) begin
                assert (! \arrivals.places.f_words [7 * f_i + 6]);
                assert (! \progress.f_words [6 * f_i + 5]);
                assert (! \progress.f_words [6 * f_i + 3]);
                assert (\orders.f_words [11 * f_i + 8]);
                assert (! \laps.f_words [f_i]);
                assert (! \quarantine.of_arrivals.f_words [f_i] && !f_held[f_i]);
            end
        end
    end

    // What the tables hold for the tags, in the order of their turns. Answers lie in the ring one behind the other; each
    // waits for its first word, or has begun. Tags that are passed over, and free ones, wait for nothing unless they rest.
    wire [5:0] f_start_of [0:2];
    assign f_start_of[0] = 0;
    wire [1:0] f_real;
    wire [1:0] f_begun;
    wire [1:0] f_number_of [0:1];
    wire [1:0] f_answers = f_real[0] + f_real[1];
    wire [1:0] f_first = f_reserved - f_answers;
    genvar turn;
    generate for (turn = 0; turn < 2; turn = turn + 1) begin : f_turn
        wire [1:0] position = \tags.f_head + turn;
        wire [6:0] place = \arrivals.places.f_words [7 * position[0] +: 7];
        wire [5:0] state = \progress.f_words [6 * position[0] +: 6];
        wire [10:0] order = \orders.f_words [11 * position[0] +: 11];
        wire rests = f_held[position[0]];
        wire is_taken = turn < tags_level;
        wire is_real = is_taken && !order[9];
        wire has_begun = state[5] == place[6];
        wire [1:0] number = f_first + (turn == 1 && f_real[0]);
        assign f_real[turn] = is_real;
        assign f_begun[turn] = has_begun;
        assign f_number_of[turn] = number;
        assign f_start_of[turn + 1] = f_start_of[turn] + (is_real ? {3'b0, order[5:3]} + 6'd1 : 6'd0);
        always @(*) if (f_age == 2) begin
            assert ((order[8] == position[1]) == is_taken);
            assert (place[6] == \laps.f_words [position[0]]);
            if (is_real) begin
                assert (order[2:0] == \chunks.f_head [2:0] + f_start_of[turn][2:0]);
                assert (place == {order[10], order[5:0]} && !rests);
                assert (f_lengths[number] == {1'b0, order[5:3]} + 4'd1);
                if (number == f_number) assert (f_is_chosen == (position[0] == f_tag));
                if (has_begun) assert (state[2:0] <= order[5:3]);
            end
            if (is_real || rests) begin
                if (has_begun && state[3]) assert (state[2:0] < place[5:3]);
                if (!has_begun) assert (!state[3]);
            end
            if (rests) assert (has_begun == state[3]);
            if (!is_real && !rests) assert (has_begun && !state[3]);
        end
    end endgenerate
    always @(*) if (f_age == 2) assert (f_start_of[2] == {2'b0, chunks_level} && chunks_level <= 8);
    always @(*) if (f_age == 2) assert (quarantined == f_held[0] + f_held[1]);
    // Tags that have an answer inside.
    wire [1:0] f_are_real =
        \tags.f_head [0] ? {f_real[0], f_real[1]} : {f_real[1], f_real[0]};

    // Of the words in the ring, those are marked as last that are.
    genvar chunk;
    generate for (chunk = 0; chunk < 8; chunk = chunk + 1) begin : f_chunk
        wire [2:0] offset = chunk - \chunks.f_head [2:0];
        wire turn = offset >= f_start_of[1];
        wire [1:0] position = \tags.f_head + turn;
        wire [5:0] state = \progress.f_words [6 * position[0] +: 6];
        wire has_begun = state[5] == \arrivals.places.f_words [7 * position[0] + 6];
        wire [2:0] index = offset - f_start_of[turn];
        wire is_here = offset < chunks_level && has_begun && index <= state[2:0];
        always @(*) if (f_age == 2 && is_here)
            assert (\memory.f_lasts [chunk] == (index == state[2:0] && !state[3]));
    end endgenerate

    // What the cycle before has written into the tables, and what stood there, which is what was read meanwhile.
    reg f_opened = 0;
    reg f_ordered = 0;
    reg f_opened_tag;
    reg [6:0] f_old_place;
    reg [10:0] f_old_order;
    reg f_changed = 0;
    reg f_changed_tag;
    reg [5:0] f_old_progress;
    reg [1:0] f_old_held;
    wire [5:0] f_new_progress = \progress.f_words [6 * f_changed_tag +: 6];
    wire [5:0] f_opened_progress = \progress.f_words [6 * f_opened_tag +: 6];
    wire [6:0] f_opened_place = \arrivals.places.f_words [7 * f_opened_tag +: 7];
    wire [1:0] f_newest = \tags.f_tail - 2'd1;
    wire f_opened_held = f_opened && f_opened_tag == \arrivals.f_held_tag ;
    wire f_ordered_oldest = f_ordered && f_opened_tag == oldest[0];
    wire f_changed_oldest = f_changed && f_changed_tag == oldest[0];
    wire [5:0] f_oldest = \progress.f_words [6 * oldest[0] +: 6];
    wire [10:0] f_oldest_order = \orders.f_words [11 * oldest[0] +: 11];
    always @(posedge clock) begin
        f_opened <= f_reserves && !reset;
        f_ordered <= (f_reserves || skips) && !reset;
        f_opened_tag <= tag;
        f_old_place <= \arrivals.places.f_words [7 * tag +: 7];
        f_old_order <= \orders.f_words [11 * tag +: 11];
        f_changed <= arrivals_changes && f_age == 2 && !reset;
        f_changed_tag <= arrivals_changed_tag;
        f_old_progress <= \progress.f_words [6 * arrivals_changed_tag +: 6];
        f_old_held <= f_age == 2 ? f_held : 0;
    end
    always @(*) if (f_age == 2) begin
        if (f_ordered) begin
            assert (tags_level != 0 && f_opened_tag == f_newest[0] && f_old_order[8] != f_newest[1]);
            assert (f_are_real[f_opened_tag] == f_opened);
        end
        if (f_opened) begin
            assert (f_ordered && f_old_place[6] != f_opened_place[6]);
            assert (f_opened_progress[5] == f_old_place[6] && !f_opened_progress[3]);
            if (f_changed) assert (f_opened_tag != f_changed_tag);
        end
        if (f_changed) begin
            assert (f_are_real[f_changed_tag] || f_old_held[f_changed_tag]);
            assert (f_new_progress[5] == \arrivals.places.f_words [7 * f_changed_tag + 6]);
            if (f_old_progress[5] != f_new_progress[5]) assert (f_new_progress[2:0] == 0);
            else assert (f_old_progress[3] && {1'b0, f_new_progress[2:0]} == f_old_progress[2:0] + 4'd1);
        end
        // Chunks are written for answers inside, not for those that were given up.
        if (arrivals_writes) assert (f_are_real[arrivals_changed_tag]);
        // The word that is held sees the tables as they are, but for a reservation that did not wait when it came.
        if (\arrivals.f_is_held ) begin
            assert (\arrivals.f_before == \progress.f_words [6 * \arrivals.f_held_tag +: 6]);
            assert (\arrivals.f_place ==
                (f_opened_held ? f_old_place : \arrivals.places.f_words [7 * \arrivals.f_held_tag +: 7]));
            assert (\arrivals.f_was_written == f_changed);
            assert (\arrivals.f_is_same_tag == (f_changed_tag == \arrivals.f_held_tag ));
            if (f_changed) assert (\arrivals.f_written == f_new_progress);
            assert (quarantine_holds_arrival == f_old_held[ \arrivals.f_held_tag ]);
            assert (recent[0]);
        end
        if (f_changed) assert (recent[1]);
        // The exit sees them as they were, and so does the next reservation.
        assert (progress_read_data == (f_changed_oldest ? f_old_progress : f_oldest));
        assert (orders_read_data[10:0] == (f_ordered_oldest ? f_old_order : f_oldest_order));
        assert (laps_read_data == \laps.f_words [tag]);
        assert (quarantine_holds_next == f_old_held[tag]);
        // A tag rests when its answer was given up, until its last word is in the tables.
        assert (has_lost == ((f_held & ~f_old_held) != 0));
        for (f_i = 0; f_i < 2; f_i = f_i + 1) if (f_old_held[f_i] && !f_held[f_i])
            assert (f_changed && f_changed_tag == f_i && !f_new_progress[3]);
        assert (f_quarantined == f_old_held[0] + f_old_held[1]);
    end

    // The oldest answer has left as far as it has come, at most.
    always @(*) begin
        assert (\tags.f_head == oldest);
        assert (f_inside == f_answers + f_is_back);
        if (!f_real[0] || !f_begun[0]) assert (next_index == 0);
        else if (f_oldest[3]) assert ({1'b0, next_index} <= f_oldest[2:0] + 4'd1);
        else assert (next_index <= f_oldest[2:0]);
        if (head_valid && next_index == 0) assert (f_out == f_first - 2'd1 && f_is_last);
        else assert (f_out == f_first && f_out_index == next_index - head_valid && !f_is_back);
        if (overdue) assert (f_limited[0] && f_real[0] && !f_ordered_oldest);
        if (f_idle != 0) assert (f_old_held == 0);
        if (f_is_idle && f_idle >= 2) assert (tags_level <= 1 && !f_ordered);
    end

    // The answer that has the tag: its words are in the tables, but for one that is held.
    reg [3:0] f_stored = 0;
    reg f_stored_failed = 0;
    always @(posedge clock) begin
        f_stored <= f_opens ? 0 : f_count;
        f_stored_failed <= f_opens ? 0 : f_failed;
    end
    wire f_is_held = f_count != f_stored;
    wire f_has_turn = f_are_real[f_tag];
    wire [1:0] f_number_turn = f_number - f_first;
    wire [5:0] f_progress = \progress.f_words [6 * f_tag +: 6];
    wire [6:0] f_place = \arrivals.places.f_words [7 * f_tag +: 7];
    assign \memory.f_address = f_place[2:0] + f_index;
    always @(*) if (f_age == 2) begin
        assert (f_came[0] == (\arrivals.f_is_held && \arrivals.f_held_tag == f_tag));
        assert ((f_came[0] && f_awaited[0]) == (f_came[0] && arrivals_changes));
        assert (f_held[f_tag] == (f_is_resting || f_rested[0]));
        if (f_rests) assert (f_waits);
        if (!f_has_turn && !f_held[f_tag]) assert (!f_waits && !(f_came[0] && f_awaited[0]));
        else begin
            assert (f_place[5:3] == f_last_index);
            assert (f_count <= f_last_index + 4'd1);
            assert (f_count == f_stored + (f_came[0] && f_awaited[0]));
            if (f_waits) assert (f_count <= f_last_index);
            else assert (f_count != 0);
            assert ((f_stored == 0) == (f_progress[5] != f_place[6]));
            if (f_stored == 0) assert (!f_stored_failed);
            else assert (f_progress == {f_place[6], f_stored_failed, f_waits || f_is_held, f_stored[2:0] - 3'd1});
            if (f_is_held) assert (\arrivals.f_is_open == f_waits && arrivals_word[520] == f_failed);
            else assert (f_failed == f_stored_failed);
        end
        if (f_has_turn) assert (f_holder == (f_tag == \tags.f_head [0] ? f_number_of[0] : f_number_of[1]));
        // The chosen answer, and its chosen word from the host to the head.
        if (tx_valid && f_is_turn) assert (head_is_lost == f_was_given_up);
        if (f_is_chosen && f_number_turn < f_answers) begin
            assert (f_has_turn && f_holder == f_number && f_total == f_count && !f_is_lost);
            assert (\orders.f_words [11 * f_tag + 6 +: 2] == f_cookie);
            if (f_is_held && f_stored == f_index) assert ({arrivals_word[520:512], arrivals_word[7:0]} == f_word);
            if (f_stored > f_index && (f_number_turn != 0 || next_index <= f_index)) assert (\memory.f_word == f_word);
        end
        // From the host it takes one cycle to the tables, and another one until the exit sees it.
        if (f_is_due && !f_real[0]) assert (f_late == 0);
        if (f_is_due && f_late >= 1) assert (f_stored > f_out_index);
        if (f_is_due && f_late >= 2) assert (!f_changed_oldest || f_out_index != f_oldest[2:0]);
    end
