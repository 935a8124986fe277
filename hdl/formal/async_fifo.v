// Asynchronous FIFO of 4 beats: whatever the two clocks do, beats leave in the order in which they came, none lost, none
// twice; the pointers that cross change one bit at a time; no word is written before it was read, or read before it was
// written; an offer stays.
//
// Both clocks are free: in each step of the proof either, both or none may rise. A flip-flop of a synchronizer that is
// caught in a change settles to the bit before or after it. Since one bit at most changes, what it holds is the pointer
// before or after, which is what a clock that rises a little earlier or later would have seen; free clocks cover both.
// The proof begins after the resets, which have to overlap (invariant 4 of the block).
//
// Beats are numbered as they come (f_in) and as they leave (f_out), modulo 16, which is more than are ever inside. The
// solver chooses a number, f_index; the beat with that number is remembered as it comes and compared when it leaves.
//
// What is named across modules is a wire, since a register would lose its initial value on the way.

// module write_side
    reg [2:0] f_last_gray = 0;
    always @(posedge clock) f_last_gray <= gray;
    wire [2:0] f_gray_before = f_last_gray;
    wire [2:0] f_pointer = pointer;

// module read_side
    reg [2:0] f_last_gray = 0;
    always @(posedge clock) f_last_gray <= gray;
    wire [2:0] f_gray_before = f_last_gray;
    wire [2:0] f_pointer = pointer;

// module synchronizer
    wire [2:0] f_first = first;

// module crossing_memory
    wire [31:0] f_words = {words[3], words[2], words[1], words[0]};

// module dut
    (* hierconn *) wire [31:0] \memory.f_words ;
    (* hierconn *) wire [2:0] \write_side.f_pointer ;
    (* hierconn *) wire [2:0] \write_side.f_gray_before ;
    (* hierconn *) wire [2:0] \read_side.f_pointer ;
    (* hierconn *) wire [2:0] \read_side.f_gray_before ;
    (* hierconn *) wire [2:0] \to_read_side.f_first ;
    (* hierconn *) wire [2:0] \to_write_side.f_first ;
    always @(*) assume (!write_reset && !read_reset);

    (* anyconst *) reg [3:0] f_index;
    reg [3:0] f_in = 0;
    reg [3:0] f_out = 0;
    reg [7:0] f_beat;
    always @(posedge write_clock)
        if (rx_valid && rx_ready) begin
            f_in <= f_in + 1;
            if (f_in == f_index) f_beat <= rx_beat;
        end
    // What was offered before the last edge of the reader, and not taken.
    reg f_is_kept = 0;
    reg [7:0] f_kept;
    always @(posedge read_clock) begin
        if (tx_valid && tx_ready) f_out <= f_out + 1;
        f_is_kept <= tx_valid && !tx_ready;
        f_kept <= tx_beat;
    end

    function [2:0] f_gray(input [2:0] number);
        f_gray = number ^ (number >> 1);
    endfunction
    function [2:0] f_number(input [2:0] gray);
        f_number = {gray[2], gray[2] ^ gray[1], ^gray};
    endfunction
    function f_is_one_bit(input [2:0] bits);
        f_is_one_bit = (bits & (bits - 3'd1)) == 0;
    endfunction

    // The pointers along the way of a beat, oldest last: written, on the way to the reader, seen there, read, on the way
    // back, seen by the writer. Each is behind the one before, and all lie within the depth.
    wire [2:0] f_written = \write_side.f_pointer ;
    wire [2:0] f_read = \read_side.f_pointer ;
    wire [2:0] f_step_1 = f_written - f_number(\to_read_side.f_first );
    wire [2:0] f_step_2 = f_number(\to_read_side.f_first ) - f_number(to_read_side_q);
    wire [2:0] f_step_3 = f_number(to_read_side_q) - f_read;
    wire [2:0] f_step_4 = f_read - f_number(\to_write_side.f_first );
    wire [2:0] f_step_5 = f_number(\to_write_side.f_first ) - f_number(to_write_side_q);
    wire [5:0] f_sum = {3'b0, f_step_1} + f_step_2 + f_step_3 + f_step_4 + f_step_5;
    wire [3:0] f_inside = f_in - f_out;
    wire [3:0] f_position = f_index - f_out;
    wire [7:0] f_word = \memory.f_words [8 * f_index[1:0] +: 8];

    always @(*) begin
        // What leaves is what came.
        if (tx_valid && f_out == f_index) assert (tx_beat == f_beat);
        if (tx_valid) assert (f_inside != 0);
        // An offer that was not taken stays as it is.
        if (f_is_kept) assert (tx_valid && tx_beat == f_kept);
        // What crosses is Gray code, one bit changing at a time.
        assert (write_side_write_gray == f_gray(f_written));
        assert (read_side_read_gray == f_gray(f_read));
        assert (f_is_one_bit(write_side_write_gray ^ \write_side.f_gray_before ));
        assert (f_is_one_bit(read_side_read_gray ^ \read_side.f_gray_before ));
        // No overflow and no underflow: 4 beats in the memory at most, and one at the exit.
        assert (f_sum <= 4);
        assert (f_inside <= 5);
        assert (f_inside == ((f_written - f_read) & 3'd7) + tx_valid);
        // Invariants, which make the induction go through.
        assert (f_in[2:0] == f_written);
        assert (f_out[2:0] + {2'b0, tx_valid} == f_read);
        if (f_position < f_inside && !(tx_valid && f_position == 0)) assert (f_word == f_beat);
    end
