// Arbiter of 3 inputs: each beat that moves comes from one input, unchanged; frames are not mixed; an offer stays; an
// input waits for at most one frame of each other input.
//
// Assumed: the neighbours keep an offer, with its beat and its mark of the last, until it is taken.

// module dut
    wire [2:0] f_valid = {rx_2_valid, rx_1_valid, rx_0_valid};
    wire [2:0] f_ready = {rx_2_ready, rx_1_ready, rx_0_ready};
    wire [2:0] f_moves = f_valid & f_ready;
    wire [23:0] f_beats = {rx_2_beat, rx_1_beat, rx_0_beat};
    // A frame is under way: its first beat has moved and its last has not.
    reg f_is_open = 0;
    // The input whose beat moved last.
    reg [2:0] f_owner = 0;
    reg f_started = 0;

    // An input of the solver's choice and, as bits, the others that ended a frame while it waited.
    (* anyconst *) reg [1:0] f_input;
    always @(*) assume (f_input <= 2);
    reg [2:0] f_served = 0;
    wire f_ends = |(f_moves & last);
    wire f_waits = f_valid[f_input] && !(f_is_open && f_owner[f_input]);

    always @(posedge clock) begin
        f_started <= 1;
        if (reset) begin
            f_is_open <= 0;
            f_served <= 0;
        end else begin
            if (|f_moves) begin
                f_is_open <= !f_ends;
                f_owner <= f_moves;
            end
            if (!f_waits || f_moves[f_input]) f_served <= 0;
            else if (f_ends) f_served <= f_served | f_moves;
        end
    end

    genvar f_i;
    generate
        for (f_i = 0; f_i < 3; f_i = f_i + 1) begin : f_each
            always @(posedge clock)
                if (f_started && $past(!reset && f_valid[f_i] && !f_ready[f_i])) begin
                    assume (f_valid[f_i]);
                    assume (last[f_i] == $past(last[f_i]));
                    assume (f_beats[8 * f_i +: 8] == $past(f_beats[8 * f_i +: 8]));
                end
            always @(*)
                if (origin[f_i]) assert (tx_beat == f_beats[8 * f_i +: 8]);
        end
    endgenerate

    // Place of an input in the round: 0 is served next. `later` has ones from the first input of the round on.
    wire [1:0] f_first = later == 3'b110 ? 1 : later == 3'b100 ? 2 : 0;
    function [1:0] f_place(input [1:0] i);
        f_place = i >= f_first ? i - f_first : i + 2'd3 - f_first;
    endfunction
    wire [1:0] f_place_of_holder = f_place(holder[1] ? 1 : holder[2] ? 2 : 0);

    always @(*) begin
        // One grant; a beat moves at the exit exactly when one moves at an entry.
        assert ((f_ready & (f_ready - 3'd1)) == 0);
        assert ((tx_valid && tx_ready) == (f_moves != 0));
        if (f_moves != 0) assert (origin == f_moves);
        assert (tx_valid == (origin != 0));
        // Nobody waits for nothing.
        if (!f_is_open && f_valid != 0) assert (tx_valid);
        // The frame that is under way is not mixed with another.
        if (f_is_open && tx_valid) assert (origin == f_owner);
        // Bounded waiting: no other input ends a second frame while this one waits, so that it waits for 2 at most.
        if (f_waits && f_ends && !f_moves[f_input]) assert ((f_served & f_moves) == 0);
        // Invariants, which make the induction go through.
        assert (later == 0 || later == 3'b110 || later == 3'b100);
        assert ((holder & (holder - 3'd1)) == 0);
        if (f_is_open) assert (holder == f_owner && holder != 0);
        if (!f_is_open && holder != 0) assert ((holder & f_valid) != 0);
        assert (!f_served[f_input]);
        if (f_served != 0) begin
            assert (f_waits);
            if (f_served[0]) assert (f_place(f_input) < f_place(0));
            if (f_served[1]) assert (f_place(f_input) < f_place(1));
            if (f_served[2]) assert (f_place(f_input) < f_place(2));
            if (holder != 0) assert (f_place_of_holder <= f_place(f_input));
        end
    end

    // An offer that is not taken stays as it is.
    always @(posedge clock)
        if (f_started && $past(!reset && tx_valid && !tx_ready)) begin
            assert (tx_valid);
            assert (tx_beat == $past(tx_beat));
            assert (origin == $past(origin));
        end
