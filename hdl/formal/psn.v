// PSN comparison: the verdict is the definition (protocol 3.2), for every pair of numbers. The definition is said with
// steps around the circle of 2^24 numbers, not with the subtraction that the block uses.

// module dut
    // Any way from `expected` to `number`: so many steps forward.
    (* anyseq *) wire [23:0] f_steps;
    wire [23:0] f_reached = expected + f_steps;
    wire [23:0] f_back = number + f_steps;

    always @(*) begin
        // Expected exactly when the numbers are equal.
        assert ((check == 2'd0) == (number == expected));
        // Ahead by 1 to 2^23 - 1 steps, behind by 1 to 2^23.
        if (f_reached == number && f_steps >= 1 && f_steps <= 24'h7fffff) assert (check == 2'd1);
        if (f_back == expected && f_steps >= 1 && f_steps <= 24'h800000) assert (check == 2'd2);
        // Exactly one verdict.
        assert (check != 2'd3);
        if (f_reached == number) assert (distance == f_steps);
    end
