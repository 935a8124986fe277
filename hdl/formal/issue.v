// Issue: a packet is sent only if its epoch is the newest one that acknowledge had said of its queue pair when the packet came to the
// front, and if acknowledge had not closed its generation (design decisions 8, 9). What acknowledge says later finds the packet sent,
// and the epoch of `issued` older than its own.
//
// The memory of what acknowledge says chooses a queue pair, f_address. Assumed: segment keeps an offer until it is taken.

// module memory_now
    (* anyconst *) reg [9:0] f_address;
    wire [40:0] f_word = words[f_address];

// module dut
    (* hierconn *) wire [9:0] \nows.f_address ;
    (* hierconn *) wire [40:0] \nows.f_word ;
    // The newest epoch, and the newest one when the packet came to the front.
    reg [7:0] f_epoch = 0;
    reg [7:0] f_at_front = 0;
    // Whether a generation is closed, and which; the same when the packet came to the front.
    reg [8:0] f_closed = 0;
    reg [8:0] f_closed_at_front = 0;
    reg f_started = 0;
    wire f_is_chosen = packet_beat[9:0] == \nows.f_address ;
    wire f_is_judged = step == Step_Answers || step == Step_Listed || step == Step_Write;
    wire f_sends = writes && outcome[6];

    always @(posedge clock) begin
        f_started <= 1;
        if (sweep[10]) begin
            if (sweep[9:0] == \nows.f_address ) begin
                f_epoch <= 0;
                f_closed <= {retired[17:10], 1'b0};
            end
        end else if (retired[115] && retired[9:0] == \nows.f_address ) begin
            f_epoch <= retired[112:105];
            f_closed <= {retired[17:10], retired[18]};
        end
        if (step == Step_Begin) begin
            f_at_front <= f_epoch;
            f_closed_at_front <= f_closed;
        end
        if (f_started && $past(!reset && packet_valid && !packet_ready)) begin
            assume (packet_valid);
            assume (packet_beat == $past(packet_beat));
        end
        // A command for gather is that of a packet which is sent, or a mark.
        if (f_started && $past(!reset && !gather_valid) && gather_valid)
            assert ($past(f_sends || (step == Step_Continue && is_sent) || (mark_valid && mark_ready)));
    end

    always @(*) begin
        if (f_sends && f_is_chosen) assert (packet_beat[27:20] == f_at_front);
        if (f_sends && f_is_chosen) assert (!f_closed_at_front[0] || packet_beat[17:10] != f_closed_at_front[8:1]);
        // Invariants, which make the induction go through.
        assert (\nows.f_word [7:0] == f_epoch);
        assert (\nows.f_word [32] == f_closed[0]);
        assert (!f_closed[0] || \nows.f_word [40:33] == f_closed[8:1]);
        if (f_started && f_is_judged) assert (packet_valid);
        if (f_is_judged && f_is_chosen) begin
            assert (nows_read_data[7:0] == f_at_front);
            assert (nows_read_data[32] == f_closed_at_front[0]);
            assert (!f_closed_at_front[0] || nows_read_data[40:33] == f_closed_at_front[8:1]);
        end
    end
