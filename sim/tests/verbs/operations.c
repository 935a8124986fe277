/* All operations of the verbs between two cards, and what is refused, by the headers of the distribution. Both ends are in this
   process: rnic0 is the requester, rnic1 the responder. Any difference from what the manual says ends it with exit code 1. */
#include <fcntl.h>
#include <poll.h>
#include "sides.h"

static void create_queue_pair(struct side *side) {
    struct ibv_qp_init_attr init = {.send_cq = side->cq, .recv_cq = side->cq, .cap = {20, 20, 4, 2, 64}, .qp_type = IBV_QPT_RC};
    CHECK((side->qp = ibv_create_qp(side->pd, &init)));
    CHECK(init.cap.max_send_wr >= 20 && init.cap.max_send_sge >= 4 && init.cap.max_inline_data >= 64);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS};
    CHECK(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PORT) == EINVAL && side->qp->state == IBV_QPS_RESET);
    initialise(side);
}

static void post(struct side *side, struct ibv_send_wr *wr, struct side *peer, int offset) {
    struct ibv_send_wr *bad;
    wr->send_flags |= IBV_SEND_SIGNALED;
    wr->wr.rdma.remote_addr = (uintptr_t)peer->memory + offset;
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
        wr->wr.atomic.rkey = peer->mr->rkey;
    else
        wr->wr.rdma.rkey = peer->mr->rkey;
    CHECK(ibv_post_send(side->qp, wr, &bad) == 0);
}

static void write_and_read(struct side *side, struct side *peer) {
    /* The first of the list is not signalled. */
    struct ibv_sge list[] = {part(side, 0, 1000), part(side, 1000, 1), part(side, 1001, 2000)}, last = part(side, 3001, 999);
    struct ibv_send_wr second = {.wr_id = 2, .sg_list = &last, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)peer->memory + 3001, peer->mr->rkey}};
    struct ibv_send_wr first = {.wr_id = 1, .next = &second, .sg_list = list, .num_sge = 3, .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {(uintptr_t)peer->memory, peer->mr->rkey}}, *bad;
    CHECK(ibv_post_send(side->qp, &first, &bad) == 0);
    CHECK(completed(side, 2, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_WRITE);
    CHECK(!memcmp(side->memory, peer->memory, 4000));
    struct ibv_sge into = part(side, 8192, 4000);
    struct ibv_send_wr read = {.wr_id = 3, .sg_list = &into, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
    post(side, &read, peer, 0);
    CHECK(completed(side, 3, IBV_WC_SUCCESS).byte_len == 4000);
    CHECK(!memcmp(side->memory + 8192, peer->memory, 4000));
}

static void atomics(struct side *side, struct side *peer) {
    uint64_t *original = (uint64_t *)(side->memory + 8192), *remote = (uint64_t *)(peer->memory + 8192);
    *remote = 5;
    struct ibv_sge into = part(side, 8192, 8);
    struct ibv_send_wr wr = {.wr_id = 4, .sg_list = &into, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
    wr.wr.atomic.compare_add = 7;
    post(side, &wr, peer, 8192);
    CHECK(completed(side, 4, IBV_WC_SUCCESS).opcode == IBV_WC_FETCH_ADD && *original == 5 && *remote == 12);
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic.compare_add = 12;
    wr.wr.atomic.swap = 99;
    post(side, &wr, peer, 8192);
    CHECK(completed(side, 4, IBV_WC_SUCCESS).opcode == IBV_WC_COMP_SWAP && *original == 12 && *remote == 99);
}

/* An inline message with immediate data wakes the responder, which waits with poll(2). */
static void message_with_event(struct side *side, struct side *peer) {
    struct ibv_cq *cq;
    void *context;
    fcntl(peer->channel->fd, F_SETFL, O_NONBLOCK);
    CHECK(ibv_get_cq_event(peer->channel, &cq, &context) == -1 && errno == EAGAIN);
    CHECK(ibv_req_notify_cq(peer->cq, 1) == 0);
    struct ibv_sge into = part(peer, 12000, 100);
    struct ibv_recv_wr receive = {.wr_id = 50, .sg_list = &into, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(peer->qp, &receive, &bad) == 0);
    char text[] = "a text of more bytes than one slot of a WQE has";
    struct ibv_sge from = {(uintptr_t)text, sizeof text, 0};
    struct ibv_send_wr send = {.wr_id = 6, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
        .imm_data = htobe32(0x12345678), .send_flags = IBV_SEND_INLINE | IBV_SEND_SOLICITED};
    post(side, &send, peer, 0);
    struct pollfd readable = {peer->channel->fd, POLLIN, 0};
    CHECK(poll(&readable, 1, 30000) == 1);
    CHECK(ibv_get_cq_event(peer->channel, &cq, &context) == 0 && cq == peer->cq && context == peer);
    ibv_ack_cq_events(cq, 1);
    struct ibv_wc wc = completed(peer, 50, IBV_WC_SUCCESS);
    CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == sizeof text && !strcmp(peer->memory + 12000, text));
    CHECK((wc.wc_flags & IBV_WC_WITH_IMM) && be32toh(wc.imm_data) == 0x12345678);
    completed(side, 6, IBV_WC_SUCCESS);
}

static void refusals(struct side *side) {
    CHECK(!ibv_reg_mr(side->pd, (void *)0x10000, 4096, RIGHTS) && errno == EFAULT);
    CHECK(!ibv_reg_mr(side->pd, (void *)(uintptr_t)open_side, 64, RIGHTS) && errno == EFAULT);
    CHECK(!ibv_reg_mr(side->pd, side->memory, 4096, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
    CHECK(!ibv_reg_mr(side->pd, side->memory, 4096, IBV_ACCESS_ON_DEMAND) && errno == EOPNOTSUPP);
    struct ibv_sge many[9] = {{0}};
    struct ibv_send_wr wr = {.sg_list = many, .num_sge = 9, .opcode = IBV_WR_SEND}, *bad = NULL;
    CHECK(ibv_post_send(side->qp, &wr, &bad) == EINVAL && bad == &wr);
    CHECK(ibv_dealloc_pd(side->pd) == EBUSY && ibv_destroy_cq(side->cq) == EBUSY);
    CHECK(ibv_resize_cq(side->cq, 1000) == 0 && side->cq->cqe >= 1000 && ibv_resize_cq(side->cq, 1 << 30) == EINVAL);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    CHECK(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN) == EINVAL);
}

/* A wrong key fails the queue pairs of both: completions and flushes here, an asynchronous event there. */
static void failure(struct side *side, struct side *peer) {
    struct ibv_sge from = part(side, 0, 100);
    struct ibv_send_wr second = {.wr_id = 10, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr first = {.wr_id = 9, .next = &second, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {(uintptr_t)peer->memory, peer->mr->rkey ^ 0x100}}, *bad;
    CHECK(ibv_post_send(side->qp, &first, &bad) == 0);
    completed(side, 9, IBV_WC_REM_ACCESS_ERR);
    completed(side, 10, IBV_WC_WR_FLUSH_ERR);
    struct ibv_async_event event;
    struct pollfd readable = {peer->context->async_fd, POLLIN, 0};
    CHECK(poll(&readable, 1, 30000) == 1 && ibv_get_async_event(peer->context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == peer->qp);
    ibv_ack_async_event(&event);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(side->qp, &attr, 0, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
}

int main(void) {
    static struct side sides[2];
    char stack[BYTES] __attribute__((aligned(8)));
    open_sides(sides, stack);
    create_queue_pair(&sides[0]);
    create_queue_pair(&sides[1]);
    connect_side(&sides[0], &sides[1]);
    connect_side(&sides[1], &sides[0]);
    write_and_read(&sides[0], &sides[1]);
    atomics(&sides[0], &sides[1]);
    message_with_event(&sides[0], &sides[1]);
    refusals(&sides[0]);
    failure(&sides[0], &sides[1]);
    close_side(&sides[0]);
    close_side(&sides[1]);
    puts("all operations are right");
    return 0;
}
