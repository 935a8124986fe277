// Ack: no acknowledgement and no NAK leaves while a READ or an atomic of its queue pair is open: released, and its last response not
// on its way (protocol 3.5, 3.8). A queue pair that owes a reply and has nothing open is noted as queued, so that none is forgotten.
//
// The memory of the records chooses a queue pair, f_address; f_open counts its READs and atomics by what goes to the READ responder
// and comes back. Assumed: of what is open no more is closed than there is, and at most 1,023 are open. The clearing after a reset
// ends at any time (f_swept): the records begin empty.

// module memory_reply_record
    (* anyconst *) reg [9:0] f_address;
    wire [248:0] f_word = words[f_address];

// module dut
    (* hierconn *) wire [9:0] \records.f_address ;
    (* hierconn *) wire [248:0] \records.f_word ;
    reg [9:0] f_open = 0;
    wire [9:0] f_reads = \records.f_word [20:11];
    wire f_is_alive = \records.f_word [0];
    wire f_is_queued = \records.f_word [9];
    wire f_owes_first = \records.f_word [69];
    wire f_owes_newest = \records.f_word [159];

    wire f_is_chosen = !clears && !is_idle && queue_pair == \records.f_address ;
    // Something for the READ responder, of the generation that the queue pair has; a dropped duplicate gets no answer.
    wire f_releases = f_is_chosen && (change[2] || is_again) && !is_dropped;
    wire f_closes = f_is_chosen && step == Step_Close && is_own;
    wire f_restarts = f_is_chosen && is_set && record_after_setup_drops;

    always @(posedge clock) begin
        if (clears) begin
            if (sweep == \records.f_address ) f_open <= 0;
        end else if (f_restarts) f_open <= 0;
        else if (f_releases) f_open <= f_open + 1;
        else if (f_closes) f_open <= f_open - closing_count;
    end

    always @(*) begin
        if (f_closes) assume (closing_count <= f_open);
        if (f_releases) assume (f_open != 10'h3ff);
        if (f_is_chosen && leaves) assert (f_open == 0);
        if (f_owes_first && f_is_alive && f_open == 0) assert (f_is_queued);
        // Invariants, which make the induction go through.
        assert (f_reads == f_open);
        assert (step <= Step_Send);
        if (f_is_chosen) assert (records_read_data == \records.f_word );
        if (f_owes_newest) assert (f_owes_first);
        if (!f_is_alive) assert (!f_owes_first);
    end
