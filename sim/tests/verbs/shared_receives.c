/* Shared receive queues by the headers of the distribution: two queue pairs of rnic1 take receives from one queue. */
#include <poll.h>
#include "sides.h"

#define PAIRS 2
#define RECEIVES 10

static struct ibv_qp *created(struct side *side, struct ibv_srq *srq) {
    struct ibv_qp_init_attr init = {.send_cq = side->cq, .recv_cq = side->cq, .srq = srq, .cap = {20, 20, 2, 2, 0},
        .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(side->pd, &init);
    CHECK(qp && qp->srq == srq && (init.cap.max_recv_wr == 0) == !!srq);
    return qp;
}

static struct ibv_srq *create_shared_queue(struct side *side) {
    struct ibv_srq_init_attr init = {.srq_context = side, .attr = {.max_wr = RECEIVES, .max_sge = 2}};
    struct ibv_srq_init_attr many = {.attr = {.max_wr = 1 << 20, .max_sge = 1}}, wide = {.attr = {.max_wr = 1, .max_sge = 99}};
    CHECK(!ibv_create_srq(side->pd, &many) && errno == EINVAL);
    CHECK(!ibv_create_srq(side->pd, &wide) && errno == EINVAL);
    struct ibv_srq *srq = ibv_create_srq(side->pd, &init);
    CHECK(srq && srq->srq_context == side && init.attr.max_wr >= RECEIVES && init.attr.max_sge >= 2);
    uint32_t number;
    CHECK(ibv_get_srq_num(srq, &number) == 0);
    struct ibv_srq_init_attr_ex extended = {.attr = {.max_wr = 1, .max_sge = 1}, .pd = side->pd,
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD, .srq_type = IBV_SRQT_BASIC};
    struct ibv_srq *other = ibv_create_srq_ex(side->context, &extended);
    CHECK(other && ibv_destroy_srq(other) == 0);
    extended.srq_type = IBV_SRQT_TM;
    CHECK(!ibv_create_srq_ex(side->context, &extended) && errno == EOPNOTSUPP);
    return srq;
}

/* As many receives as fit, and none more. */
static void fill(struct side *side, struct ibv_srq *srq) {
    struct ibv_sge sges[RECEIVES + 1];
    struct ibv_recv_wr list[RECEIVES + 1], *bad = NULL;
    for (int place = 0; place <= RECEIVES; place++) {
        sges[place] = part(side, 1000 * place, 1000);
        list[place] = (struct ibv_recv_wr){.wr_id = 70 + place, .sg_list = &sges[place], .num_sge = 1, .next = &list[place + 1]};
    }
    list[RECEIVES].next = NULL;
    CHECK(ibv_post_srq_recv(srq, list, &bad) == ENOMEM && bad == &list[RECEIVES]);
}

/* The limit is reached once, and is zero then. */
static void limit(struct side *side, struct ibv_srq *srq) {
    struct ibv_srq_attr attr = {.srq_limit = RECEIVES + 1};
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == EINVAL);
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == EOPNOTSUPP);
    attr.srq_limit = RECEIVES - 2;
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
    CHECK(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == RECEIVES - 2 && attr.max_wr == RECEIVES);
    struct pollfd readable = {side->context->async_fd, POLLIN, 0};
    CHECK(poll(&readable, 1, 0) == 0);
}

static void limit_reached(struct side *side, struct ibv_srq *srq) {
    struct ibv_async_event event;
    struct ibv_srq_attr attr;
    struct pollfd readable = {side->context->async_fd, POLLIN, 0};
    CHECK(poll(&readable, 1, 30000) == 1 && ibv_get_async_event(side->context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
    ibv_ack_async_event(&event);
    CHECK(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == 0);
}

/* Messages of both queue pairs take the receives in turn. */
static void messages(struct side *side, struct side *peer, struct ibv_qp *from[PAIRS], struct ibv_qp *to[PAIRS]) {
    for (int count = 0; count < RECEIVES; count++) {
        struct ibv_sge sge = part(side, 100 * count, 900);
        struct ibv_send_wr wr = {.wr_id = count, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
            .send_flags = IBV_SEND_SIGNALED}, *bad;
        side->qp = from[count % PAIRS];
        peer->qp = to[count % PAIRS];
        CHECK(ibv_post_send(side->qp, &wr, &bad) == 0);
        CHECK(completed(peer, 70 + count, IBV_WC_SUCCESS).byte_len == 900);
        CHECK(!memcmp(peer->memory + 1000 * count, side->memory + 100 * count, 900));
        completed(side, count, IBV_WC_SUCCESS);
    }
}

int main(void) {
    static struct side sides[2];
    char stack[BYTES] __attribute__((aligned(8)));
    struct side *side = &sides[0], *peer = &sides[1];
    struct ibv_qp *from[PAIRS], *to[PAIRS];
    open_sides(sides, stack);
    struct ibv_srq *srq = create_shared_queue(peer);
    for (int pair = 0; pair < PAIRS; pair++) {
        side->qp = from[pair] = created(side, NULL);
        peer->qp = to[pair] = created(peer, srq);
        initialise(side);
        initialise(peer);
        connect_side(side, peer);
        connect_side(peer, side);
    }
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad = NULL;
    CHECK(ibv_post_recv(to[0], &receive, &bad) == EINVAL && bad == &receive && ibv_destroy_srq(srq) == EBUSY);
    fill(peer, srq);
    limit(peer, srq);
    messages(side, peer, from, to);
    limit_reached(peer, srq);
    CHECK(ibv_destroy_qp(from[0]) == 0 && ibv_destroy_qp(to[0]) == 0);
    side->qp = from[1];
    peer->qp = to[1];
    CHECK(ibv_destroy_qp(peer->qp) == 0 && ibv_destroy_srq(srq) == 0);
    peer->qp = created(peer, NULL);
    close_side(side);
    close_side(peer);
    puts("all shared receives are right");
    return 0;
}
