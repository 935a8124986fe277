/* What the programs of this folder share: two cards, one at each end of a connection, and the check that ends a program with exit
   code 1. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES 16384
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define CHECK(condition) check(!!(condition), #condition, __FILE__, __LINE__)

struct side {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    union ibv_gid gid;
    char *memory;
};

static void check(int is_right, const char *text, const char *file, int line) {
    if (!is_right) {
        fprintf(stderr, "%s:%d: %s, errno %d\n", file, line, text, errno);
        exit(1);
    }
}

static void open_side(struct side *side, struct ibv_device *device, char *memory) {
    side->memory = memory;
    CHECK((side->context = ibv_open_device(device)));
    CHECK((side->pd = ibv_alloc_pd(side->context)));
    CHECK((side->channel = ibv_create_comp_channel(side->context)));
    CHECK((side->cq = ibv_create_cq(side->context, 100, side, side->channel, 0)));
    CHECK((side->mr = ibv_reg_mr(side->pd, memory, BYTES, RIGHTS)));
    CHECK(ibv_query_gid(side->context, 1, 0, &side->gid) == 0);
}

static void initialise(struct side *side) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS};
    CHECK(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
}

static void connect_side(struct side *side, struct side *peer) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num, .rq_psn = 100,
        .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}}};
    CHECK(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    struct ibv_qp_attr send = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 100, .max_rd_atomic = 4};
    CHECK(ibv_modify_qp(side->qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(side->qp, &attr, 0, &init) == 0 && attr.qp_state == IBV_QPS_RTS && side->qp->state == IBV_QPS_RTS);
    CHECK(attr.path_mtu == IBV_MTU_1024 && attr.timeout == 14 && attr.dest_qp_num == peer->qp->qp_num);
    CHECK(!memcmp(&attr.ah_attr.grh.dgid, &peer->gid, sizeof peer->gid));
}

/* Waits for one completion of a request. */
static inline struct ibv_wc completed(struct side *side, uint64_t wr_id, enum ibv_wc_status status) {
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(side->cq, 1, &wc)) == 0) {}
    CHECK(count == 1 && wc.wr_id == wr_id && wc.status == status && wc.qp_num == side->qp->qp_num);
    return wc;
}

static struct ibv_sge part(struct side *side, int offset, int length) {
    return (struct ibv_sge){(uintptr_t)side->memory + offset, length, side->mr->lkey};
}

/* Opens both cards, over memory of the stack and of a mapping. */
static void open_sides(struct side sides[2], char *stack) {
    int count;
    /* What does not complete is a failure too. */
    alarm(120);
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 2);
    for (int place = 0; place < BYTES; place++)
        stack[place] = place * 7 + place / 251;
    open_side(&sides[0], list[0], stack);
    open_side(&sides[1], list[1], mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ibv_free_device_list(list);
}

static void close_side(struct side *side) {
    CHECK(ibv_destroy_qp(side->qp) == 0 && ibv_destroy_cq(side->cq) == 0);
    CHECK(ibv_destroy_comp_channel(side->channel) == 0 && ibv_dereg_mr(side->mr) == 0);
    CHECK(ibv_dealloc_pd(side->pd) == 0 && ibv_close_device(side->context) == 0);
}
