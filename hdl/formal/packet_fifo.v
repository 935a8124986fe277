// Packet FIFO of 4 beats: exactly the beats of committed packets leave, in order, none lost, none twice; of a packet that
// was rolled back or found no room, no beat is ever seen; `fits` and `level` are right; an offer stays.
//
// The model knows only the ports. Beats that were promised to the reader are numbered as they are committed (f_base) and
// as they leave (f_out), modulo 16, which is more than are ever inside. Beats of the open packet are numbered on from
// there, and their numbers are used again when the packet is forgotten. The solver chooses a number, f_index; the beat
// with that number is remembered as it comes and compared when it leaves.

// module memory
    wire [31:0] f_words = {words[3], words[2], words[1], words[0]};

// module dut
    (* hierconn *) wire [31:0] \memory.f_words ;
    (* anyconst *) reg [3:0] f_index;
    reg [3:0] f_base = 0;
    reg [3:0] f_open = 0;
    reg [3:0] f_out = 0;
    reg f_is_whole = 1;
    reg [7:0] f_beat;
    reg f_started = 0;
    // The head has left the memory.
    wire [3:0] f_level = f_base + f_open - f_out - tx_valid;
    wire f_fits = f_is_whole && !(write && f_level == 4);
    wire [3:0] f_size = f_open + (write && f_fits);
    wire [3:0] f_promised = f_base - f_out;
    wire [3:0] f_inside = f_base + f_open - f_out;
    wire [3:0] f_position = f_index - f_out;
    wire [7:0] f_word = \memory.f_words [8 * f_index[1:0] +: 8];

    always @(posedge clock) begin
        f_started <= 1;
        if (reset) begin
            f_base <= 0;
            f_open <= 0;
            f_out <= 0;
            f_is_whole <= 1;
        end else begin
            if (write && f_fits && f_base + f_open == f_index) f_beat <= beat;
            if (tx_valid && tx_ready) f_out <= f_out + 1;
            if (commit || rollback) begin
                f_open <= 0;
                f_is_whole <= 1;
                if (!rollback && f_fits) f_base <= f_base + f_size;
            end else begin
                f_open <= f_size;
                f_is_whole <= f_fits;
            end
        end
    end

    always @(*) begin
        // What leaves was promised, and is what came.
        if (tx_valid) assert (f_promised != 0);
        if (tx_valid && f_out == f_index) assert (tx_beat == f_beat);
        // The packet fits as long as each of its beats has found room; the memory never holds more than its depth.
        assert (fits == f_fits);
        assert (level == f_level);
        assert (f_level <= 4);
        // Invariants, which make the induction go through: pointers, counts, the beat in the memory.
        assert (f_open <= 4);
        assert (f_promised <= 5);
        assert (f_inside <= 5);
        assert (f_open <= f_inside);
        assert (has_overflowed == !f_is_whole);
        assert (commit_pointer == f_base[2:0]);
        assert (write_pointer == f_base[2:0] + f_open[2:0]);
        assert (read_pointer == f_out[2:0] + {2'b0, tx_valid});
        if (f_position < f_inside && !(tx_valid && f_position == 0)) assert (f_word == f_beat);
    end

    always @(posedge clock) begin
        // An offer that is not taken stays as it is.
        if (f_started && $past(!reset && tx_valid && !tx_ready)) begin
            assert (tx_valid);
            assert (tx_beat == $past(tx_beat));
        end
        // No promised beat is kept back.
        if (f_started && $past(!reset && f_promised > (tx_valid && tx_ready))) assert (tx_valid);
    end
