// Free cells, 4 of them: a cell that a packet holds is not taken again, none is lost, and the cells of a packet stay chained
// in the order in which they were taken.
//
// The model knows only the ports: a mask of the cells of the open packet, and one of those of committed packets. It is
// assumed that only cells of committed packets are given back. The solver chooses a cell, f_cell; what the open packet takes
// after it is remembered and compared when the cell is followed.

// module memory
    wire [7:0] f_words = {words[3], words[2], words[1], words[0]};

// module dut
    (* hierconn *) wire [7:0] \free_links.f_words ;
    (* hierconn *) wire [7:0] \packet_links.f_words ;
    (* anyconst *) reg [1:0] f_cell;
    reg [3:0] f_open = 0;
    reg [3:0] f_held = 0;
    reg [1:0] f_last;
    reg f_has_next = 0;
    reg [1:0] f_next;
    reg f_started = 0;
    wire f_takes = takes && has_cell;
    wire [3:0] f_taken = f_open | (f_takes ? 4'b1 << head : 4'b0);
    wire [3:0] f_given = gives ? 4'b1 << given : 4'b0;

    always @(*) if (gives) assume (f_held[given]);

    always @(posedge clock) begin
        f_started <= 1;
        if (reset) begin
            f_open <= 0;
            f_held <= 0;
        end else begin
            f_open <= rollback || commit ? 4'b0 : f_taken;
            f_held <= (rollback || !commit ? f_held : f_held | f_taken) & ~f_given;
            if (f_takes) begin
                f_last <= head;
                if (head == f_cell) f_has_next <= 0;
                else if (f_open != 0 && f_last == f_cell) begin
                    f_has_next <= 1;
                    f_next <= head;
                end
            end
        end
    end

    // Cells that have not entered the list since reset; all others that no packet holds are free.
    wire [3:0] f_unused = unused == 0 ? 4'b0000 : unused == 1 ? 4'b0010 : unused == 2 ? 4'b0110 : 4'b1110;
    wire [3:0] f_free = ~(f_open | f_held | f_unused);
    wire [2:0] f_open_count = f_open[0] + f_open[1] + f_open[2] + f_open[3];
    wire [2:0] f_free_count = f_free[0] + f_free[1] + f_free[2] + f_free[3];
    wire [2:0] f_count = f_open_count + f_free_count;

    always @(*) begin
        // What is taken is free; the open packet begins where it says.
        if (f_takes) assert (f_free[head]);
        if (f_open != 0) assert (f_open[start]);
        // No cell has two states. All free cells can be taken but one, and one that has just come.
        assert ((f_open & f_held) == 0 && ((f_open | f_held) & f_unused) == 0);
        assert (f_free_count != 0);
        assert (spare + has_entered == f_free_count - 3'd1);
        assert (has_cell == (f_free_count > 3'd1 + has_entered));
    end

    // The cells of a packet are followed in their order.
    always @(posedge clock)
        if (f_started && $past(!reset && f_held[f_cell] && f_has_next && follows == f_cell))
            assert (after == $past(f_next));

    // The rest are invariants, which make the induction go through: from the start of the packet the links lead through its
    // cells, and then through all that are free, to the tail.
    wire [1:0] f_walk [0:3];
    assign f_walk[0] = packet_start;
    assign f_walk[1] = \free_links.f_words [2 * f_walk[0] +: 2];
    assign f_walk[2] = \free_links.f_words [2 * f_walk[1] +: 2];
    assign f_walk[3] = \free_links.f_words [2 * f_walk[2] +: 2];
    wire [1:0] f_end = f_count - 3'd1;
    wire [1:0] f_newest = f_open_count - 3'd1;
    genvar position;
    generate for (position = 0; position < 4; position = position + 1) begin : f_position
        always @(*) begin
            if (position < f_open_count) assert (f_open[f_walk[position]]);
            else if (position < f_count) assert (f_free[f_walk[position]]);
        end
    end endgenerate
    always @(*) begin
        assert (\free_links.f_words == \packet_links.f_words );
        if (f_count > 1) assert (f_walk[0] != f_walk[1]);
        if (f_count > 2) assert (f_walk[0] != f_walk[2] && f_walk[1] != f_walk[2]);
        if (f_count > 3) assert (f_walk[0] != f_walk[3] && f_walk[1] != f_walk[3] && f_walk[2] != f_walk[3]);
        assert (tail == f_walk[f_end]);
        assert (first_free == f_walk[f_open_count[1:0]]);
        assert (spare_at_start + has_entered == f_count - 3'd1);
        if (f_open != 0) assert (f_last == f_walk[f_newest]);
        if (spare != 0) assert (free_links_read_data == \free_links.f_words [2 * first_free +: 2]);
        if ((f_open[f_cell] && f_last != f_cell) || (f_held[f_cell] && f_has_next)) begin
            assert (f_has_next);
            assert (f_next == \free_links.f_words [2 * f_cell +: 2]);
        end
        if (f_open[f_cell] && f_last == f_cell) assert (!f_has_next);
    end
