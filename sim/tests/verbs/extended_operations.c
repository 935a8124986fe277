/* Extended completion queues and ibv_wr_* by the headers of the distribution: rnic0 posts in sessions, and both ends poll field by
   field. */
#include "sides.h"

#define OPERATIONS (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | \
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)

static struct ibv_cq_ex *create_queue(struct side *side) {
    struct ibv_cq_init_attr_ex attr = {.cqe = 100, .cq_context = side, .wc_flags = IBV_WC_STANDARD_FLAGS};
    struct ibv_cq_init_attr_ex other = attr;
    other.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    CHECK(!ibv_create_cq_ex(side->context, &other) && errno == EOPNOTSUPP);
    other = attr;
    other.comp_vector = 9;
    CHECK(!ibv_create_cq_ex(side->context, &other) && errno == EINVAL);
    struct ibv_cq_ex *queue = ibv_create_cq_ex(side->context, &attr);
    CHECK(queue && queue->cq_context == side && queue->cqe >= 100);
    struct ibv_poll_cq_attr poll = {0};
    CHECK(ibv_start_poll(queue, &poll) == ENOENT);
    poll.comp_mask = 1;
    CHECK(ibv_start_poll(queue, &poll) == EINVAL);
    return queue;
}

static struct ibv_qp_ex *create_pair(struct side *side) {
    struct ibv_qp_init_attr_ex init = {.send_cq = side->cq, .recv_cq = side->cq, .cap = {20, 20, 3, 2, 64}, .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = side->pd, .send_ops_flags = OPERATIONS};
    struct ibv_qp_init_attr_ex other = init;
    other.send_ops_flags |= IBV_QP_EX_WITH_BIND_MW;
    CHECK(!ibv_create_qp_ex(side->context, &other) && errno == EOPNOTSUPP);
    other = init;
    other.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    CHECK(!ibv_create_qp_ex(side->context, &other) && errno == EOPNOTSUPP);
    CHECK((side->qp = ibv_create_qp_ex(side->context, &init)) && init.cap.max_send_wr >= 20);
    initialise(side);
    return ibv_qp_to_qp_ex(side->qp);
}

/* Waits for the next completion, which has to succeed, and leaves it open for reading. */
static void begin(struct ibv_cq_ex *queue, uint64_t wr_id, enum ibv_wc_opcode opcode, struct side *side) {
    struct ibv_poll_cq_attr attr = {0};
    int status;
    while ((status = ibv_start_poll(queue, &attr)) == ENOENT) {}
    CHECK(status == 0 && queue->status == IBV_WC_SUCCESS && queue->wr_id == wr_id);
    CHECK(ibv_wc_read_opcode(queue) == opcode && ibv_wc_read_qp_num(queue) == side->qp->qp_num);
}

static void session(struct ibv_qp_ex *qp, struct ibv_cq_ex *queue, struct side *side, struct side *peer) {
    uint64_t *original = (uint64_t *)(side->memory + 8192), *remote = (uint64_t *)(peer->memory + 8192);
    struct ibv_sge list[] = {part(side, 0, 100), part(side, 100, 900)};
    *remote = 5;
    ibv_wr_start(qp);
    qp->wr_id = 1;
    qp->wr_flags = 0;
    ibv_wr_rdma_write(qp, peer->mr->rkey, (uintptr_t)peer->memory);
    ibv_wr_set_sge_list(qp, 2, list);
    qp->wr_id = 2;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_atomic_fetch_add(qp, peer->mr->rkey, (uintptr_t)remote, 7);
    ibv_wr_set_sge(qp, side->mr->lkey, (uintptr_t)original, 8);
    CHECK(ibv_wr_complete(qp) == 0);
    begin(queue, 2, IBV_WC_FETCH_ADD, side);
    CHECK(ibv_next_poll(queue) == ENOENT);
    ibv_end_poll(queue);
    CHECK(*original == 5 && *remote == 12 && !memcmp(side->memory, peer->memory, 1000));
    ibv_wr_start(qp);
    qp->wr_id = 3;
    ibv_wr_atomic_cmp_swp(qp, peer->mr->rkey, (uintptr_t)remote, 12, 99);
    ibv_wr_set_sge(qp, side->mr->lkey, (uintptr_t)original, 8);
    CHECK(ibv_wr_complete(qp) == 0);
    begin(queue, 3, IBV_WC_COMP_SWAP, side);
    ibv_end_poll(queue);
    CHECK(*original == 12 && *remote == 99);
    ibv_wr_start(qp);
    qp->wr_id = 4;
    ibv_wr_rdma_read(qp, peer->mr->rkey, (uintptr_t)peer->memory);
    ibv_wr_set_sge(qp, side->mr->lkey, (uintptr_t)side->memory + 9000, 1000);
    CHECK(ibv_wr_complete(qp) == 0);
    begin(queue, 4, IBV_WC_RDMA_READ, side);
    CHECK(ibv_wc_read_byte_len(queue) == 1000);
    ibv_end_poll(queue);
    CHECK(!memcmp(side->memory + 9000, peer->memory, 1000));
}

/* Two inline messages, of which the responder reads one after the other. */
static void messages(struct ibv_qp_ex *qp, struct ibv_cq_ex *queue, struct ibv_cq_ex *peer_queue, struct side *side, struct side *peer) {
    for (int count = 0; count < 2; count++) {
        struct ibv_sge into = part(peer, 12000 + 100 * count, 100);
        struct ibv_recv_wr receive = {.wr_id = 50 + count, .sg_list = &into, .num_sge = 1}, *bad;
        CHECK(ibv_post_recv(peer->qp, &receive, &bad) == 0);
    }
    struct ibv_data_buf text[] = {{"one text ", 9}, {"in two parts", 13}};
    ibv_wr_start(qp);
    qp->wr_id = 5;
    qp->wr_flags = 0;
    ibv_wr_send_imm(qp, htobe32(0x12345678));
    ibv_wr_set_inline_data_list(qp, 2, text);
    qp->wr_id = 6;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    ibv_wr_set_inline_data(qp, "another", 8);
    CHECK(ibv_wr_complete(qp) == 0);
    begin(queue, 6, IBV_WC_SEND, side);
    ibv_end_poll(queue);
    begin(peer_queue, 50, IBV_WC_RECV, peer);
    CHECK(ibv_wc_read_wc_flags(peer_queue) == IBV_WC_WITH_IMM && ibv_wc_read_imm_data(peer_queue) == htobe32(0x12345678));
    CHECK(ibv_wc_read_byte_len(peer_queue) == 22 && !strcmp(peer->memory + 12000, "one text in two parts"));
    int status;
    while ((status = ibv_next_poll(peer_queue)) == ENOENT) {}
    CHECK(status == 0 && peer_queue->wr_id == 51 && ibv_wc_read_wc_flags(peer_queue) == 0 && !ibv_wc_read_vendor_err(peer_queue));
    ibv_end_poll(peer_queue);
    CHECK(!strcmp(peer->memory + 12100, "another"));
}

/* A session that fails, or is given up, posts nothing. */
static void refusals(struct ibv_qp_ex *qp, struct ibv_cq_ex *queue, struct side *side, struct side *peer) {
    struct ibv_sge many[9] = {{0}};
    static char long_text[4096];
    qp->wr_flags = IBV_SEND_SIGNALED;
    for (int mistake = 0; mistake < 5; mistake++) {
        ibv_wr_start(qp);
        qp->wr_id = 7;
        ibv_wr_rdma_write(qp, peer->mr->rkey, (uintptr_t)peer->memory + 4000);
        ibv_wr_set_sge(qp, side->mr->lkey, (uintptr_t)side->memory, 1);
        switch (mistake) {
        case 0: ibv_wr_set_sge_list(qp, 9, many); break;
        case 1: ibv_wr_set_inline_data(qp, long_text, sizeof long_text); break;
        case 2: ibv_wr_send_tso(qp, long_text, 1, 1); break;
        case 3: for (int count = 0; count < 1000; count++) ibv_wr_send(qp); break;
        case 4: ibv_wr_abort(qp); continue;
        }
        int expected[] = {EINVAL, EINVAL, EOPNOTSUPP, ENOMEM};
        CHECK(ibv_wr_complete(qp) == expected[mistake]);
    }
    struct ibv_poll_cq_attr attr = {0};
    CHECK(ibv_start_poll(queue, &attr) == ENOENT);
}

int main(void) {
    static struct side sides[2];
    char stack[BYTES] __attribute__((aligned(8)));
    struct side *side = &sides[0], *peer = &sides[1];
    open_sides(sides, stack);
    struct ibv_cq_ex *queues[2];
    struct ibv_qp_ex *qp = NULL;
    for (int end = 1; end >= 0; end--) {
        CHECK(ibv_destroy_cq(sides[end].cq) == 0);
        queues[end] = create_queue(&sides[end]);
        sides[end].cq = ibv_cq_ex_to_cq(queues[end]);
        CHECK((qp = create_pair(&sides[end])));
    }
    struct ibv_qp_init_attr plain = {.send_cq = side->cq, .recv_cq = side->cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *other = ibv_create_qp(side->pd, &plain);
    CHECK(other && !ibv_qp_to_qp_ex(other) && ibv_destroy_qp(other) == 0);
    connect_side(side, peer);
    connect_side(peer, side);
    session(qp, queues[0], side, peer);
    messages(qp, queues[0], queues[1], side, peer);
    refusals(qp, queues[0], side, peer);
    close_side(side);
    close_side(peer);
    puts("all extended operations are right");
    return 0;
}
