// FIFO of 4 beats: beats leave in the order in which they came, none lost, none twice; `level` counts them and never
// exceeds the depth; an offer stays.
//
// Beats are numbered as they come (f_in) and as they leave (f_out), modulo 16, which is more than are ever inside. The
// solver chooses a number, f_index; the beat with that number is remembered as it comes and compared when it leaves.

// module memory
    wire [31:0] f_words = {words[3], words[2], words[1], words[0]};

// module dut
    (* hierconn *) wire [31:0] \memory.f_words ;
    (* anyconst *) reg [3:0] f_index;
    reg [3:0] f_in = 0;
    reg [3:0] f_out = 0;
    reg [7:0] f_beat;
    reg f_started = 0;
    wire [3:0] f_inside = f_in - f_out;
    wire [3:0] f_position = f_index - f_out;
    wire [7:0] f_word = \memory.f_words [8 * f_index[1:0] +: 8];

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
        // The level is the number of beats inside; the queue takes beats until it is full, and only then not.
        assert (level == f_inside);
        assert (f_inside <= 4);
        assert (rx_ready == (f_inside < 4));
        if (tx_valid) assert (f_inside != 0);
        // Invariants, which make the induction go through: addresses, the head, the beat in the memory.
        assert (write_address == f_in[1:0]);
        assert (read_address == f_out[1:0] + {1'b0, head_valid});
        if (!head_valid) assert (f_inside <= 1);
        if (f_position < f_inside && !(head_valid && f_position == 0)) assert (f_word == f_beat);
    end

    always @(posedge clock) begin
        // An offer that is not taken stays as it is.
        if (f_started && $past(!reset && tx_valid && !tx_ready)) begin
            assert (tx_valid);
            assert (tx_beat == $past(tx_beat));
        end
        // No beat is kept back: one cycle after it came, or after the one before it left, a beat is offered.
        if (f_started && $past(!reset && f_inside > (tx_valid && tx_ready))) assert (tx_valid);
    end
