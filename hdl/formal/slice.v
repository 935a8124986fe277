// Register slice: beats leave in the order in which they came, none lost, none twice; an offer stays.
//
// Beats are numbered as they come (f_in) and as they leave (f_out), modulo 16, which is more than are ever inside. The
// solver chooses a number, f_index; the beat with that number is remembered as it comes and compared when it leaves.

// module dut
    (* anyconst *) reg [3:0] f_index;
    reg [3:0] f_in = 0;
    reg [3:0] f_out = 0;
    reg [7:0] f_beat;
    reg f_started = 0;
    wire [3:0] f_inside = f_in - f_out;

    always @(posedge clock) begin
        f_started <= 1;
        if (reset) begin
            f_in <= 0;
            f_out <= 0;
        end else begin
            if (rx_valid && rx_ready) f_in <= f_in + 1;
            if (rx_valid && rx_ready && f_in == f_index) f_beat <= rx_beat;
            if (tx_valid && tx_ready) f_out <= f_out + 1;
        end
    end

    always @(*) begin
        // What leaves is what came.
        if (tx_valid && f_out == f_index) assert (tx_beat == f_beat);
        // Nothing is lost and nothing appears.
        assert (f_inside == head_valid + spare_valid);
        // Invariants, which make the induction go through.
        if (spare_valid) assert (head_valid);
        if (spare_valid && f_out + 4'd1 == f_index) assert (spare == f_beat);
    end

    // An offer that is not taken stays as it is.
    always @(posedge clock)
        if (f_started && $past(!reset && tx_valid && !tx_ready)) begin
            assert (tx_valid);
            assert (tx_beat == $past(tx_beat));
        end
