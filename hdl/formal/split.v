// Splitter at 16 bytes: the pieces of a span follow each other without gap or overlap and add up to it; none crosses a
// boundary; the last one, alone, is marked; an offer stays.
//
// The model keeps what is still to come of the span that was taken: f_next, the address of its next byte, and f_left, the
// number of its bytes. Lengths and addresses are those of the product; only the boundary is small.

// module dut
    reg [63:0] f_next;
    reg [31:0] f_left;
    reg f_busy = 0;
    reg f_started = 0;
    wire [63:0] f_address = tx_beat[63:0];
    wire [4:0] f_length = tx_beat[68:64];
    wire f_last = tx_beat[69];

    always @(posedge clock) begin
        f_started <= 1;
        if (reset) begin
            f_busy <= 0;
        end else begin
            if (tx_valid && tx_ready) begin
                f_next <= f_next + f_length;
                f_left <= f_left - f_length;
                if (f_last) f_busy <= 0;
            end
            if (rx_valid && rx_ready) begin
                f_next <= rx_beat[63:0];
                f_left <= rx_beat[95:64];
                f_busy <= 1;
            end
        end
    end

    always @(*) begin
        // A piece is offered while a span is under way, and only then; a span waits until the one before has left.
        assert (tx_valid == f_busy);
        if (rx_ready) assert (!f_busy || (tx_ready && f_last));
        if (tx_valid) begin
            // No gap, no overlap.
            assert (f_address == f_next);
            // The sum is the span.
            assert (f_length <= f_left);
            assert (f_last == (f_length == f_left));
            // No boundary is crossed, and a piece that is not the last goes up to it.
            assert (f_address[3:0] + f_length <= 5'd16);
            if (!f_last) assert (f_address[3:0] + f_length == 5'd16);
            // Only a span of no bytes has a piece of none.
            if (f_left != 0) assert (f_length != 0);
            // Invariant, which makes the induction go through.
            assert (left == f_left);
        end
    end

    // An offer that is not taken stays as it is.
    always @(posedge clock)
        if (f_started && $past(!reset && tx_valid && !tx_ready)) begin
            assert (tx_valid);
            assert (tx_beat == $past(tx_beat));
        end
