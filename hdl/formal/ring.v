// Ring of 4 places, which keeps the books of the chunk buffer: no place is owned twice, the count of owned places is
// conserved, and a reservation is refused exactly when there is no room.
//
// The solver chooses a place, f_place; the model knows whether it is owned, and counts what was taken and given back.
// Assumed of the owner: it wants 1 to 4 places, and gives back no more than it has.

// module dut
    (* anyconst *) reg [1:0] f_place;
    reg f_is_owned = 0;
    reg [2:0] f_count = 0;
    // Where the oldest reservation begins.
    reg [1:0] f_oldest = 0;
    wire f_takes = reserve && fits;
    wire [1:0] f_behind_position = f_place - position[1:0];
    wire [1:0] f_behind_oldest = f_place - f_oldest;
    wire f_is_taken = f_takes && f_behind_position < amount;
    wire f_is_given_back = returns && f_behind_oldest < returned;

    always @(*) assume (amount >= 1 && amount <= 4);
    always @(*) assume (!returns || returned <= f_count);

    always @(posedge clock)
        if (reset) begin
            f_is_owned <= 0;
            f_count <= 0;
            f_oldest <= 0;
        end else begin
            f_is_owned <= f_is_taken || (f_is_owned && !f_is_given_back);
            f_count <= f_count + (f_takes ? amount : 3'd0) - (returns ? returned : 3'd0);
            if (returns) f_oldest <= f_oldest + returned[1:0];
        end

    always @(*) begin
        // No place is owned twice, and only an owned one is given back.
        if (f_is_taken) assert (!f_is_owned);
        if (f_is_given_back) assert (f_is_owned);
        // The count is conserved and never exceeds the places.
        assert (level == f_count);
        assert (f_count <= 4);
        assert (fits == ({1'b0, f_count} + amount <= 4'd4));
        // Invariants, which make the induction go through.
        assert (f_oldest == head[1:0]);
        assert (f_is_owned == ({1'b0, f_behind_oldest} < f_count));
    end
