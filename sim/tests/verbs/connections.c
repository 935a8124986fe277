// Checks the calls of the connection manager on two cards, with the headers of the distribution: a server on the one card and a client on
// the other, both of this process. What programs of the distribution do not reach is here: refusals, private data, wrong states.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                                                                    \
    do {                                                                                                                                    \
        if (!(condition)) {                                                                                                                 \
            fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno));                           \
            exit(1);                                                                                                                        \
        }                                                                                                                                   \
    } while (0)

static struct sockaddr_in cards[2];
static struct rdma_event_channel *server_channel, *client_channel;
static struct rdma_cm_id *listener;

// The next event, which is of this kind, within ten seconds.
static struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type kind) {
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    CHECK(poll(&fd, 1, 10000) == 1);
    CHECK(!rdma_get_cm_event(channel, &event));
    if (event->event != kind)
        fprintf(stderr, "%s instead of %s\n", rdma_event_str(event->event), rdma_event_str(kind));
    CHECK(event->event == kind);
    return event;
}

static void take(struct rdma_event_channel *channel, enum rdma_cm_event_type kind) {
    CHECK(!rdma_ack_cm_event(expect(channel, kind)));
}

static void find_cards(void) {
    int count;
    struct ibv_context **contexts = rdma_get_devices(&count);
    CHECK(contexts && count == 2 && !contexts[2]);
    for (int card = 0; card < 2; card++) {
        union ibv_gid gid;
        CHECK(!ibv_query_gid(contexts[card], 1, 0, &gid));
        cards[card].sin_family = AF_INET;
        memcpy(&cards[card].sin_addr, gid.raw + 12, 4);
    }
    rdma_free_devices(contexts);
}

static void create_qp(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    CHECK(!rdma_create_qp(id, NULL, &attr));
    CHECK(id->qp && id->send_cq && id->recv_cq && id->pd == id->qp->pd && id->qp->state == IBV_QPS_INIT);
}

// A client that is ready to connect to a port of the first card.
static struct rdma_cm_id *client(__be16 port) {
    struct sockaddr_in to = cards[0];
    struct rdma_cm_id *id;
    to.sin_port = port;
    CHECK(!rdma_create_id(client_channel, &id, NULL, RDMA_PS_TCP));
    CHECK(rdma_resolve_route(id, 1000) == -1 && errno == EINVAL);
    CHECK(!rdma_resolve_addr(id, (struct sockaddr *)&cards[1], (struct sockaddr *)&to, 1000));
    take(client_channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(!rdma_resolve_route(id, 1000));
    take(client_channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(id->verbs && id->port_num == 1 && id->route.num_paths == 1 && rdma_get_dst_port(id) == port);
    create_qp(id);
    return id;
}

static void destroy(struct rdma_cm_id *id) {
    rdma_destroy_qp(id);
    CHECK(!rdma_destroy_id(id));
}

static void listen_at_a_card(void) {
    CHECK(!rdma_create_id(server_channel, &listener, (void *)7, RDMA_PS_TCP));
    CHECK(rdma_accept(listener, NULL) == -1 && errno == EINVAL);
    CHECK(rdma_disconnect(listener) == -1 && errno == EINVAL);
    CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&cards[0]));
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&cards[0]) == -1 && errno == EINVAL);
    CHECK(listener->verbs && rdma_get_src_port(listener));
    CHECK(!rdma_listen(listener, 4));

    struct sockaddr_in same = cards[0];
    struct rdma_cm_id *other;
    same.sin_port = rdma_get_src_port(listener);
    CHECK(!rdma_create_id(server_channel, &other, NULL, RDMA_PS_TCP));
    CHECK(rdma_bind_addr(other, (struct sockaddr *)&same) == -1 && errno == EADDRINUSE);
    CHECK(!rdma_destroy_id(other));
    CHECK(rdma_create_id(server_channel, &other, NULL, RDMA_PS_UDP) == -1 && errno == EPROTONOSUPPORT);
}

// The server rejects, with a reason of its own.
static void reject(void) {
    char data[255] = "not today";
    struct rdma_conn_param asks = {.private_data = "please", .private_data_len = 6, .retry_count = 7};
    struct rdma_cm_id *id = client(rdma_get_src_port(listener));
    struct rdma_conn_param too_long = {.private_data = data, .private_data_len = 57};
    CHECK(rdma_connect(id, &too_long) == -1 && errno == EINVAL);
    CHECK(!rdma_connect(id, &asks));
    struct rdma_cm_event *event = expect(server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *asked = event->id;
    CHECK(event->listen_id == listener && asked->context == (void *)7 && asked->verbs == listener->verbs);
    CHECK(event->param.conn.private_data_len >= 6 && !memcmp(event->param.conn.private_data, "please", 6));
    CHECK(!rdma_ack_cm_event(event));
    CHECK(rdma_reject(asked, data, 149) == -1 && errno == EINVAL);
    CHECK(!rdma_reject(asked, data, 10));
    CHECK(!rdma_destroy_id(asked));
    event = expect(client_channel, RDMA_CM_EVENT_REJECTED);
    CHECK(event->id == id && event->status == 28 && event->param.conn.private_data_len >= 10);
    CHECK(!strcmp(event->param.conn.private_data, data) && id->qp->state == IBV_QPS_ERR);
    CHECK(!rdma_ack_cm_event(event));
    destroy(id);
}

// A server that destroys the identifier, or the listener, without an answer.
static void leave_unanswered(void) {
    struct rdma_cm_id *id = client(rdma_get_src_port(listener));
    CHECK(!rdma_connect(id, NULL));
    struct rdma_cm_event *event = expect(server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *asked = event->id;
    CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(asked));
    take(client_channel, RDMA_CM_EVENT_REJECTED);
    destroy(id);
}

static void refuse(void) {
    struct rdma_cm_id *id = client(htons(1));
    CHECK(!rdma_connect(id, NULL));
    struct rdma_cm_event *event = expect(client_channel, RDMA_CM_EVENT_REJECTED);
    CHECK(event->status == 8);
    CHECK(!rdma_ack_cm_event(event));
    destroy(id);
}

// Connects, sends a message, and ends, with the server's identifier on a channel of its own.
static void connect_and_send(void) {
    char sent[16] = "over the cards", received[16] = "";
    struct rdma_conn_param asks = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
    struct rdma_conn_param gives = {.private_data = "welcome", .private_data_len = 7, .rnr_retry_count = 7};
    struct rdma_event_channel *own = rdma_create_event_channel();
    struct rdma_cm_id *id = client(rdma_get_src_port(listener)), *served;
    struct ibv_wc wc;
    uint8_t tos = 32;
    int mask;

    CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos));
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, 99, &tos, sizeof tos) == -1 && errno == ENOSYS);
    CHECK(!rdma_connect(id, &asks));
    struct rdma_cm_event *event = expect(server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    served = event->id;
    CHECK(event->param.conn.responder_resources == 1 && event->param.conn.initiator_depth == 1);
    CHECK(event->param.conn.qp_num == id->qp->qp_num && !rdma_ack_cm_event(event));
    CHECK(!rdma_migrate_id(served, own) && served->channel == own);
    create_qp(served);
    struct ibv_mr *from = rdma_reg_msgs(id, sent, sizeof sent), *to = rdma_reg_msgs(served, received, sizeof received);
    CHECK(from && to && !rdma_post_recv(served, NULL, received, sizeof received, to));
    CHECK(!rdma_accept(served, &gives));
    event = expect(client_channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->param.conn.private_data_len >= 7 && !memcmp(event->param.conn.private_data, "welcome", 7));
    CHECK(id->qp->state == IBV_QPS_RTS && !rdma_ack_cm_event(event));
    take(own, RDMA_CM_EVENT_ESTABLISHED);

    struct sockaddr_in *peer = (struct sockaddr_in *)rdma_get_peer_addr(served);
    CHECK(peer->sin_addr.s_addr == cards[1].sin_addr.s_addr && peer->sin_port == rdma_get_src_port(id));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    CHECK(!rdma_init_qp_attr(id, &attr, &mask) && attr.dest_qp_num == served->qp->qp_num);
    CHECK(attr.ah_attr.grh.traffic_class == tos && (mask & IBV_QP_AV));

    CHECK(!rdma_post_send(id, NULL, sent, sizeof sent, from, IBV_SEND_SIGNALED));
    CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(rdma_get_recv_comp(served, &wc) == 1 && wc.status == IBV_WC_SUCCESS && !strcmp(sent, received));

    CHECK(!rdma_post_recv(served, NULL, received, sizeof received, to));
    CHECK(!rdma_disconnect(id));
    take(client_channel, RDMA_CM_EVENT_DISCONNECTED);
    take(own, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(!rdma_disconnect(served));
    CHECK(rdma_get_recv_comp(served, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(!rdma_dereg_mr(from) && !rdma_dereg_mr(to));
    destroy(id);
    destroy(served);
    rdma_destroy_event_channel(own);
}

// Without a channel each call waits, and fails by itself.
static void connect_in_step(void) {
    struct sockaddr_in to = cards[0];
    struct rdma_cm_id *id;
    to.sin_port = htons(1);
    CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, (struct sockaddr *)&cards[1], (struct sockaddr *)&to, 1000) && !rdma_resolve_route(id, 1000));
    create_qp(id);
    CHECK(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED && id->event->event == RDMA_CM_EVENT_REJECTED);
    rdma_destroy_ep(id);
}

int main(void) {
    CHECK((server_channel = rdma_create_event_channel()) && (client_channel = rdma_create_event_channel()));
    find_cards();
    listen_at_a_card();
    reject();
    leave_unanswered();
    refuse();
    connect_and_send();
    connect_in_step();

    struct rdma_cm_id *id = client(rdma_get_src_port(listener));
    CHECK(!rdma_connect(id, NULL));
    struct pollfd fd = {.fd = server_channel->fd, .events = POLLIN};
    CHECK(poll(&fd, 1, 10000) == 1);
    CHECK(!rdma_destroy_id(listener));
    take(client_channel, RDMA_CM_EVENT_REJECTED);
    destroy(id);
    rdma_destroy_event_channel(server_channel);
    rdma_destroy_event_channel(client_channel);
    puts("all connections are right");
    return 0;
}
