// Order of PSNs (protocol 3.2): before, after and within are their definitions, for every pair of numbers and every count.
// As in psn.v, the definition is said with steps around the circle of 2^24 numbers, of which there is one count for each
// pair; the functions subtract.

// module dut
    // Any way forward from one number to the other.
    (* anyseq *) wire [23:0] f_steps;
    wire [23:0] f_from_number = number + f_steps;
    wire [23:0] f_from_other = other + f_steps;

    always @(*) begin
        // Half the circle away, each comes before the other and neither after.
        if (f_from_number == other) assert (comes_before == (f_steps >= 1 && f_steps <= 24'h800000));
        if (f_from_other == number) assert (comes_after == (f_steps >= 1 && f_steps <= 24'h7fffff));
        // The numbers that begin with the other one are as many as the count says.
        if (f_from_other == number) assert (is_inside == (f_steps < count));
    end
