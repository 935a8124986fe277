// Chunk buffer of 2 tags and 8 chunks of 64 bytes: answers leave whole, in the order of their reservations, word by word
// as they came, whatever the host sends and whenever; tags and chunks are counted right and all come back. Two tags show
// all that can meet: the answer that leaves and the one that comes behind it, a tag in use and the same one in its next
// lap; eight chunks hold one answer of 512 bytes or parts of several.
//
// The model knows only the ports. It numbers answers as they are reserved (f_reserved) and as they leave (f_out), modulo
// 4, which is more than the 3 that are ever inside: 2 with a tag, and one whose last word is at the head. The solver
// chooses a number, f_number, and a word of that answer, f_index; this word is remembered as it comes and compared when
// it leaves, with 8 bits of its data standing for all: the block looks at none. Nothing is assumed: the host may send any
// word for any tag in any cycle, and reset may come at any time.

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
    wire [15:0] f_words = {words[1], words[0]};

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
    (* anyconst *) reg [1:0] f_number;
    (* anyconst *) reg [2:0] f_index;
    wire f_tag = f_number[0];

    // Cycles since reset, up to the 2 in which the tables are cleared.
    reg [1:0] f_age = 0;
    reg [1:0] f_reserved = 0;
    reg [1:0] f_out = 0;
    // Words that have left of the answer whose turn it is.
    reg [2:0] f_out_index = 0;
    // Lengths of the answers inside, and their sum.
    reg [3:0] f_lengths [0:3];
    reg [4:0] f_chunks = 0;
    // Of the answer that has the tag, the chosen one or another: the upper bit of its number, and what has come.
    reg f_lap = 0;
    reg f_waits = 0;
    reg [3:0] f_count = 0;
    reg [2:0] f_last_index = 0;
    reg f_failed = 0;
    // Of the chosen answer: its cookie, how many of its words have come, and the chosen word as it is to leave.
    reg [1:0] f_cookie = 0;
    reg [3:0] f_total = 0;
    reg [16:0] f_word = 0;
    // Words for the tag one and two cycles ago, and whether they were waited for.
    reg [1:0] f_came = 0;
    reg [1:0] f_awaited = 0;
    // Cycles in which the word whose turn it is had come, and was not offered.
    reg [2:0] f_late = 0;

    wire f_reserves = reserve && fits;
    wire f_opens = f_reserves && f_reserved[0] == f_tag;
    wire f_comes = arrival_valid && f_age == 2 && arrival[521] == f_tag;
    wire f_takes = f_comes && f_waits;
    wire f_is_full = f_count == {1'b0, f_last_index};
    wire f_ends = arrival[519] || f_is_full;
    wire f_fails = f_failed || arrival[520] || (f_is_full && !arrival[519]);
    wire f_leaves = tx_valid && tx_ready;
    wire f_is_last = tx_beat[519];
    wire [1:0] f_inside = f_reserved - f_out;
    // The last word at the head has given its tag and chunks back.
    wire f_is_back = tx_valid && f_is_last;
    wire f_is_due = f_inside != 0 && f_out == f_number && f_out_index < f_total && !tx_valid;

    always @(posedge clock)
        if (reset) begin
            f_age <= 0;
            f_reserved <= 0;
            f_out <= 0;
            f_out_index <= 0;
            f_chunks <= 0;
            f_waits <= 0;
            f_came <= 0;
            f_late <= 0;
        end else begin
            if (f_age != 2) f_age <= f_age + 1;
            f_came <= {f_came[0], f_comes};
            f_awaited <= {f_awaited[0], f_takes};
            f_late <= f_is_due ? f_late + 1 : 0;
            if (f_takes) begin
                f_waits <= !f_ends;
                f_count <= f_count + 1;
                f_failed <= f_fails;
                if (f_lap == f_number[1]) begin
                    f_total <= f_total + 1;
                    if (f_count == {1'b0, f_index}) f_word <= {f_fails, f_ends, arrival[518:512], arrival[7:0]};
                end
            end
            if (f_reserves) begin
                f_reserved <= f_reserved + 1;
                f_lengths[f_reserved] <= {1'b0, last_index} + 4'd1;
            end
            if (f_opens) begin
                f_lap <= f_reserved[1];
                f_waits <= 1;
                f_count <= 0;
                f_last_index <= last_index;
                f_failed <= 0;
                if (f_reserved[1] == f_number[1]) begin
                    f_cookie <= cookie;
                    f_total <= 0;
                end
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
        if (tx_valid && f_out == f_number) assert (f_out_index < f_total);
        // It is the next word in order, just as it came. Its marks are those that the host gave, but for the answer that
        // is too long: so each answer ends where it should, and the next one begins behind it.
        if (tx_valid && f_out == f_number) assert (tx_beat[522:521] == f_cookie);
        if (tx_valid && f_out == f_number && f_out_index == f_index) assert ({tx_beat[520:512], tx_beat[7:0]} == f_word);
        // Once it has come and it is its turn, it is offered within 4 cycles.
        if (f_is_due) assert (f_late <= 2);
        // No answer is given a tag for which another one waits.
        assert (tag == f_reserved[0]);
        if (f_opens) assert (!f_waits);
        // A word is reported exactly when no answer waited for it.
        if (f_came[1]) assert (is_unexpected == !f_awaited[1]);
        // Tags and chunks in use are those of the answers inside, and there is room when there is.
        assert (tags_used == f_inside - f_is_back);
        assert (chunks_used == f_chunks - (f_is_back ? {1'b0, f_lengths[f_out]} : 5'd0));
        if (f_inside == 0) assert (tags_used == 0 && chunks_used == 0);
        assert (fits == (f_age == 2 && tags_used < 2 && {1'b0, chunks_used} + {2'b0, last_index} + 5'd1 <= 8));
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
    (* hierconn *) wire [15:0] \orders.f_words ;
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

    // While the tables are being cleared, nothing is inside.
    integer f_i;
    always @(*) begin
        assert (f_age == \arrivals.f_cleared );
        assert (f_age <= 2 && tags_level <= 2);
        assert (\progress.f_words == \arrivals.table_instance.f_words );
        if (f_age != 2) begin
            assert (\tags.f_head == 0 && \tags.f_tail == 0);
            assert (\chunks.f_head == 0 && \chunks.f_tail == 0);
            assert (f_inside == 0 && f_out_index == 0 && !f_waits && f_came == 0);
            assert (! \arrivals.f_is_held && !head_valid);
            for (f_i = 0; f_i < 2; f_i = f_i + 1) if (f_i < f_age) begin
                assert (! \arrivals.places.f_words [7 * f_i + 6]);
                assert (! \progress.f_words [6 * f_i + 5]);
                assert (! \progress.f_words [6 * f_i + 3]);
            end
        end
    end

    // What the tables hold for the tags, in the order of their turns. Answers lie in the ring one behind the other; each
    // waits for its first word, or has begun. Behind them stand the free tags, which wait for nothing.
    wire [5:0] f_start_of [0:2];
    assign f_start_of[0] = 0;
    genvar turn;
    generate for (turn = 0; turn < 2; turn = turn + 1) begin : f_turn
        wire [1:0] number = \tags.f_head + turn;
        wire [6:0] place = \arrivals.places.f_words [7 * number[0] +: 7];
        wire [5:0] state = \progress.f_words [6 * number[0] +: 6];
        wire [7:0] order = \orders.f_words [8 * number[0] +: 8];
        wire is_taken = turn < tags_level;
        wire has_begun = state[5] != number[1];
        assign f_start_of[turn + 1] = f_start_of[turn] + (is_taken ? {3'b0, order[5:3]} + 6'd1 : 6'd0);
        always @(*)
            if (f_age == 2 && is_taken) begin
                assert (order[2:0] == \chunks.f_head [2:0] + f_start_of[turn][2:0]);
                assert (place == {!number[1], order[5:0]});
                assert (f_lengths[number] == {1'b0, order[5:3]} + 4'd1);
                if (has_begun) assert (state[2:0] <= order[5:3]);
                if (has_begun && state[3]) assert (state[2:0] != order[5:3]);
                if (!has_begun) assert (!state[3]);
            end else if (f_age == 2) begin
                assert (place[6] == number[1]);
                assert (!has_begun && !state[3]);
            end
    end endgenerate
    always @(*) if (f_age == 2) assert (f_start_of[2] == {2'b0, chunks_level} && chunks_level <= 8);

    // Of the words in the ring, those are marked as last that are.
    genvar chunk;
    generate for (chunk = 0; chunk < 8; chunk = chunk + 1) begin : f_chunk
        wire [2:0] offset = chunk - \chunks.f_head [2:0];
        wire turn = offset >= f_start_of[1];
        wire [1:0] number = \tags.f_head + turn;
        wire [5:0] state = \progress.f_words [6 * number[0] +: 6];
        wire [2:0] index = offset - f_start_of[turn];
        wire is_here = offset < chunks_level && state[5] != number[1] && index <= state[2:0];
        always @(*) if (f_age == 2 && is_here)
            assert (\memory.f_lasts [chunk] == (index == state[2:0] && !state[3]));
    end endgenerate

    // What the cycle before has written into the tables, and what stood there, which is what was read meanwhile.
    reg f_opened = 0;
    reg f_opened_tag;
    reg [6:0] f_old_place;
    reg [7:0] f_old_order;
    reg f_changed = 0;
    reg f_changed_tag;
    reg [5:0] f_old_progress;
    wire [5:0] f_new_progress = \progress.f_words [6 * f_changed_tag +: 6];
    wire [5:0] f_opened_progress = \progress.f_words [6 * f_opened_tag +: 6];
    wire [1:0] f_newest = \tags.f_tail - 2'd1;
    wire f_changed_turn = f_changed_tag - \tags.f_head [0];
    wire f_opened_held = f_opened && f_opened_tag == \arrivals.f_held_tag ;
    wire f_opened_oldest = f_opened && f_opened_tag == oldest[0];
    wire f_changed_oldest = f_changed && f_changed_tag == oldest[0];
    wire [5:0] f_oldest = \progress.f_words [6 * oldest[0] +: 6];
    always @(posedge clock) begin
        f_opened <= f_reserves && !reset;
        f_opened_tag <= tag;
        f_old_place <= \arrivals.places.f_words [7 * tag +: 7];
        f_old_order <= \orders.f_words [8 * tag +: 8];
        f_changed <= arrivals_writes && !reset;
        f_changed_tag <= arrivals_changed_tag;
        f_old_progress <= \progress.f_words [6 * arrivals_changed_tag +: 6];
    end
    always @(*) if (f_age == 2) begin
        if (f_opened) begin
            assert (tags_level != 0 && f_opened_tag == f_newest[0]);
            assert (f_old_place[6] == f_newest[1] && f_opened_progress[5] == f_newest[1] && !f_opened_progress[3]);
            if (f_changed) assert (f_opened_tag != f_changed_tag);
        end
        if (f_changed) assert (f_changed_turn < tags_level);
        if (f_changed) assert (f_new_progress[5] == \arrivals.places.f_words [7 * f_changed_tag + 6]);
        if (f_changed && f_old_progress[5] == f_new_progress[5])
            assert (f_old_progress[3] && {1'b0, f_new_progress[2:0]} == f_old_progress[2:0] + 4'd1);
        if (f_changed && f_old_progress[5] != f_new_progress[5]) assert (f_new_progress[2:0] == 0);
        // The word that is held sees the tables as they are, but for a reservation that did not wait when it came.
        if (\arrivals.f_is_held ) begin
            assert (\arrivals.f_before == \progress.f_words [6 * \arrivals.f_held_tag +: 6]);
            assert (\arrivals.f_place ==
                (f_opened_held ? f_old_place : \arrivals.places.f_words [7 * \arrivals.f_held_tag +: 7]));
            assert (\arrivals.f_was_written == f_changed);
            assert (\arrivals.f_is_same_tag == (f_changed_tag == \arrivals.f_held_tag ));
            if (f_changed) assert (\arrivals.f_written == f_new_progress);
        end
        // The exit sees them as they were.
        assert (progress_read_data == (f_changed_oldest ? f_old_progress : f_oldest));
        assert (orders_read_data == (f_opened_oldest ? f_old_order : \orders.f_words [8 * oldest[0] +: 8]));
    end

    // The oldest answer has left as far as it has come, at most.
    always @(*) begin
        assert (\tags.f_tail == f_reserved && \tags.f_head == oldest);
        if (tags_level == 0 || f_oldest[5] == oldest[1]) assert (next_index == 0);
        else if (f_oldest[3]) assert ({1'b0, next_index} <= f_oldest[2:0] + 4'd1);
        else assert (next_index <= f_oldest[2:0]);
        if (head_valid && next_index == 0) assert (f_out == oldest - 2'd1 && f_is_last);
        else assert (f_out == oldest && f_out_index == next_index - head_valid && !f_is_back);
    end

    // The answer that has the tag: its words are in the tables, but for one that is held.
    reg [3:0] f_stored = 0;
    reg f_stored_failed = 0;
    always @(posedge clock) begin
        f_stored <= f_opens ? 0 : f_count;
        f_stored_failed <= f_opens ? 0 : f_failed;
    end
    wire f_is_held = f_count != f_stored;
    wire [1:0] f_number_turn = f_number - \tags.f_head ;
    wire [1:0] f_turn_now = {f_lap, f_tag} - \tags.f_head ;
    wire [1:0] f_turn_other = {!f_lap, f_tag} - \tags.f_head ;
    wire [5:0] f_progress = \progress.f_words [6 * f_tag +: 6];
    wire [7:0] f_order = \orders.f_words [8 * f_tag +: 8];
    assign \memory.f_address = f_order[2:0] + f_index;
    always @(*) if (f_age == 2) begin
        assert (f_turn_other >= tags_level);
        assert (f_came[0] == (\arrivals.f_is_held && \arrivals.f_held_tag == f_tag));
        assert ((f_came[0] && f_awaited[0]) == (f_came[0] && arrivals_writes));
        if (f_turn_now >= tags_level) assert (!f_waits && !(f_came[0] && f_awaited[0]));
        else begin
            assert (f_order[5:3] == f_last_index);
            assert (f_count <= f_last_index + 4'd1);
            assert (f_count == f_stored + (f_came[0] && f_awaited[0]));
            if (f_waits) assert (f_count <= f_last_index);
            else assert (f_count != 0);
            assert ((f_stored == 0) == (f_progress[5] == f_lap));
            if (f_stored == 0) assert (!f_stored_failed);
            else assert (f_progress == {!f_lap, f_stored_failed, f_waits || f_is_held, f_stored[2:0] - 3'd1});
            if (f_is_held) assert (\arrivals.f_is_open == f_waits && arrivals_word[520] == f_failed);
            else assert (f_failed == f_stored_failed);
        end
        // The chosen answer, and its chosen word from the host to the head.
        if (f_number_turn < tags_level) begin
            assert (f_lap == f_number[1] && f_total == f_count);
            assert (f_order[7:6] == f_cookie);
            if (f_is_held && f_stored == f_index) assert ({arrivals_word[520:512], arrivals_word[7:0]} == f_word);
            if (f_stored > f_index && (f_number != oldest || next_index <= f_index)) assert (\memory.f_word == f_word);
        end
        // From the host it takes one cycle to the tables, and another one until the exit sees it.
        if (f_is_due && f_late >= 1) assert (f_stored > f_out_index);
        if (f_is_due && f_late >= 2) assert (!f_changed_oldest || f_out_index != f_oldest[2:0]);
    end
