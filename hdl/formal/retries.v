// Retries of a queue pair (protocol 2.5 to 2.7): never more than it has; all back with progress; a failure only when they are used
// up. And its epochs (design decision 8): of 256, packets of three at most are on their way.
//
// Assumed: a queue pair keeps its limits while it sends; the packets of a queue pair are sent in order, and only those of the
// newest epoch (issue.v), so that the epoch of the newest packet that was sent stays or becomes the newest one.

// module dut
    localparam F_ENDLESS = 3'd7;
    (* anyconst *) reg [2:0] f_retry_count;
    (* anyconst *) reg [2:0] f_rnr_retry;
    always @(*) begin
        assume (retry_count == f_retry_count);
        assume (rnr_retry == f_rnr_retry);
    end

    // Epochs begun since a packet of the newest one was sent.
    reg [1:0] f_unsent = 0;
    reg f_started = 0;
    always @(posedge clock) begin
        f_started <= 1;
        if (reset) f_unsent <= 0;
        else if (begins_epoch) f_unsent <= f_unsent == 3 ? 3 : f_unsent + 1;
        else if (issued_epoch == epoch) f_unsent <= 0;
    end
    always @(*) begin
        // The newest packet is of the epoch of so long ago.
        if (f_unsent == 0) assume (issued_epoch == epoch);
        if (f_started && f_unsent != 0 && issued_epoch != epoch) assume (issued_epoch == epoch - f_unsent);
        if (!f_started) assume (reset);
    end

    // Retries that were taken before this one: none with progress.
    wire [2:0] f_retries = progresses ? 0 : retries_taken;
    wire [2:0] f_rnr = progresses ? 0 : rnr_taken;

    always @(*) if (f_started && !reset) begin
        assert (retries_taken <= f_retry_count);
        if (f_rnr_retry != F_ENDLESS) assert (rnr_taken <= f_rnr_retry);
        // A loss that is news fails its message when no retry is left, and else takes one.
        if (is_loss && fails) assert (f_retries == f_retry_count && !rewinds);
        if (times_out && fails) assert (retries_taken == f_retry_count);
        if (is_early && fails) assert (f_rnr_retry != F_ENDLESS && f_rnr == f_rnr_retry && !waits);
        if (rewinds) assert (is_loss && f_retries != f_retry_count);
        if (waits) assert (is_early);
        // While the cursor is to go back, or nothing has been sent since it did, nothing takes a retry.
        if (wants_rewind || f_unsent != 0) begin
            if (issued_epoch != epoch) assert (!rewinds && !waits && !times_out);
            if (wants_rewind) assert (!rewinds && !waits && !times_out);
        end
        // A loss begins one epoch, an RNR NAK two: when the wait begins, and when it ends.
        assert (f_unsent <= 2);
        if (wants_rewind && awaits_peer) assert (f_unsent == 0);
        if (wants_rewind || awaits_peer) assert (f_unsent <= 1);
    end

    always @(posedge clock) if (f_started && !reset && $past(f_started && !reset)) begin
        if ($past(progresses)) assert (retries_taken == $past(rewinds) && rnr_taken == $past(waits));
        if ($past(rewinds)) assert (retries_taken == $past(f_retries) + 3'd1 && wants_rewind);
        if ($past(waits)) assert (rnr_taken == $past(f_rnr) + 3'd1 && awaits_peer && wants_rewind);
        if ($past(times_out && retries_taken != retry_count))
            assert (retries_taken == $past(retries_taken) + 3'd1 && wants_rewind);
        // Nothing else changes the counts.
        if ($past(!progresses && !rewinds && !times_out)) assert (retries_taken == $past(retries_taken));
        if ($past(!progresses && !waits)) assert (rnr_taken == $past(rnr_taken));
    end
