/* Groups of ranks and what they exchange. Every transfer between ranks goes through this table: it
 * is counted by (operation, group) and the last ones are kept for reports of a hang.
 *
 * Rules of all operations:
 *  - All members of a group call the same operations in the same order, with sizes that agree.
 *  - A transfer is enqueued on a stream: it begins after what the stream holds, and what is
 * enqueued after it (or after moe_comm_wait) sees its result. The CPU's streams run it inline.
 *  - request NULL: blocking in the stream's order. Else the operation is started, buffers must not
 *    be touched before moe_comm_wait(request), and requests of a group are waited for in the order
 *    they were started.
 *  - A group of one rank copies (where send and recv differ) and sends nothing.
 *  - Counts and offsets are in elements, one entry a member; counts may be 0.
 *  - Sums are made in the order of the ranks, so that all members get the same bits in every run;
 *    bf16 sums are accumulated in fp32 and rounded once.
 *  - Waiting gives the processor to others (ranks may outnumber cores). */
#ifndef MOE_COMM_COMM_H
#define MOE_COMM_COMM_H

#include <stdatomic.h>

#include "base/base.h"
#include "kernels/kernels.h"
#include "moelua/comm.h"

/* X(NAME, "name") */
#define MOE_COMM_OP_MAP(X)            \
  X(ALL_REDUCE, "all-reduce")         \
  X(ALL_GATHER, "all-gather")         \
  X(REDUCE_SCATTER, "reduce-scatter") \
  X(ALL_TO_ALL, "all-to-all")         \
  X(BROADCAST, "broadcast")           \
  X(SEND, "send")                     \
  X(RECV, "receive")                  \
  X(BARRIER, "barrier")
#define MOE_COMM_OP_ENUM(name, text) MOE_COMM_##name,
enum moe_comm_op { MOE_COMM_OP_MAP(MOE_COMM_OP_ENUM) MOE_COMM_OPS };
#undef MOE_COMM_OP_ENUM
const char *moe_comm_op_name(enum moe_comm_op op);

enum moe_reduce { MOE_SUM, MOE_MAX };

enum { MOE_COMM_TAGS = 24, MOE_COMM_RING = 256, MOE_REQUEST_WORDS = 4 };
enum { MOE_COMM_MESSAGE = 1 << 30, MOE_COMM_PIECE = 4 << 20 };

struct moe_world;

/* One group of ranks, as one of its members. Owned by the world. */
struct moe_comm {
  struct moe_world *world;
  int32_t rank, size;   /* my place in the group */
  const int32_t *ranks; /* world ranks of the members, [size] */
  void *impl;           /* the backend's communicator; shared by equal groups */
};

/* A group as a user of it holds it: tag says under which axis its traffic is counted. */
struct moe_group {
  struct moe_comm *comm;
  int32_t tag; /* below MOE_COMM_TAGS */
};
static inline int32_t moe_group_size(struct moe_group g) { return g.comm->size; }
static inline int32_t moe_group_rank(struct moe_group g) { return g.comm->rank; }

/* One operation, as the backends see it. */
struct moe_transfer {
  enum moe_comm_op op;
  enum moe_reduce reduce;
  moe_dtype dtype;
  const void *send;
  void *recv;
  int64_t n;                               /* all-reduce, broadcast, send, receive */
  const int64_t *send_count, *send_offset; /* all-to-all */
  const int64_t *count, *offset;           /* all-gather, reduce-scatter; all-to-all: receiving */
  int32_t peer;                            /* root, or the other side, in the group */
};

/* A started operation. word: the backend's. */
struct moe_request {
  struct moe_comm *comm; /* NULL: nothing to wait for */
  int64_t ring;          /* its number among the transfers of the world */
  uint64_t word[MOE_REQUEST_WORDS];
};

struct moe_board;

struct moe_backend {
  const char *name; /* "self", "mpi", "recording" */
  bool dry;         /* moves nothing, not even within a group of one */
  /* A communicator of these world ranks, all of which call this in the same order. */
  moe_status (*comm_create)(struct moe_world *world, const int32_t *ranks, int32_t size,
                            void **impl);
  void (*comm_destroy)(struct moe_world *world, void *impl);
  /* Starts an operation. The arrays of counts and offsets need not outlive the call. */
  moe_status (*start)(struct moe_comm *comm, struct moe_stream *stream,
                      const struct moe_transfer *t, struct moe_request *request);
  /* Moves all started operations on, without waiting; *done: the request's one has ended, and the
   * request is no more. NULL: operations end in start. */
  moe_status (*test)(struct moe_comm *comm, struct moe_request *request, bool *done);
  /* Moves all started operations on. NULL: they need no help. */
  void (*progress)(struct moe_world *world);
  /* The board of a rank that shares memory with this one, else NULL. May be NULL. */
  struct moe_board *(*board)(struct moe_world *world, int32_t rank);
  void (*close)(struct moe_world *world);
};

/* ---- the world ---- */

struct moe_count {
  int64_t calls;
  int64_t bytes; /* that this rank sent to others, as the operation's arithmetic has it: all-reduce
                    2(n-1)/n of the buffer, all-gather (n-1) times its part, reduce-scatter what is
                    the others', all-to-all what goes to others */
};

struct moe_ring_entry {
  int64_t number;
  enum moe_comm_op op;
  int32_t tag, size, peer;
  int64_t bytes;
  double started, ended; /* moe_now(); ended 0: still waiting */
};

/* What a rank shows to the others of its machine, so that a rank that waits can say for whom. Only
 * its owner writes it (but for `told`); others may read it half written. */
struct moe_board {
  struct moe_count count[MOE_COMM_TAGS][MOE_COMM_OPS];
  struct moe_ring_entry ring[MOE_COMM_RING];
  int64_t transfers;
  int64_t waiting; /* number of the transfer it waits for, -1: for none */
  char place[64];  /* its coordinates, "tp 0, cp 1, ..."; "" before a layout is known */
  int64_t process;
  atomic_int told; /* of the lowest rank: somebody tells the user of a hang */
};

struct moe_world {
  moe_ctx *ctx;
  const struct moe_backend *backend;
  void *impl; /* the backend's */
  int32_t rank, size;
  int64_t message_bytes;  /* longer messages are cut; a backend's limit */
  int64_t piece_bytes;    /* of a reduction at a time: what its scratch memory takes */
  struct moe_comm **comm; /* distinct groups */
  int32_t comms, room;
  const char *group_name[MOE_COMM_TAGS];   /* static; NULL: it has none */
  struct moe_board *board, *own_board;     /* mine; the same where it is not shared */
  struct moe_count (*count)[MOE_COMM_OPS]; /* of the board, as is the next: [MOE_COMM_TAGS] */
  struct moe_ring_entry *ring;             /* [MOE_COMM_RING] */
  int64_t transfers;
  char *broken; /* ranks are out of step for ever, and why; every transfer fails */
  moe_tells broken_tells;
  char label[96]; /* "rank 5 (tp 1, ...)" */
};

/* A world of one rank. */
moe_status moe_world_self(moe_ctx *ctx, struct moe_world **out);
/* Rank `rank` of `size`, in one process: transfers are counted and move nothing. For the planner
 * and for tests of sizes. */
moe_status moe_world_recording(moe_ctx *ctx, int32_t rank, int32_t size, struct moe_world **out);
/* The MPI module (libmoelua_mpi.so beside the library): host_comm points to an MPI_Comm of a host
 * that has initialised MPI, or is NULL: then this process is a program of ours, MPI is initialised
 * here and finalised when the world is destroyed. */
moe_status moe_world_mpi(moe_ctx *ctx, const void *host_comm, struct moe_world **out);
void moe_world_destroy(struct moe_world *world);
/* The context's world: the one it joined (moelua/comm.h), else one of a single rank. Owned by the
 * context. */
moe_status moe_ctx_world(moe_ctx *ctx, struct moe_world **out);

/* The communicator of these world ranks (ascending is not needed; this rank is one of them), made
 * or found. Collective over the ranks. It lives as long as the world. */
moe_status moe_comm_get(struct moe_world *world, const int32_t *ranks, int32_t size,
                        struct moe_comm **out);

/* ---- operations ---- */

/* x[n] on every member = sum (or max) over members. */
moe_status moe_all_reduce(struct moe_group g, struct moe_stream *s, void *x, int64_t n,
                          moe_dtype dtype, enum moe_reduce reduce, struct moe_request *request);
/* recv + offset[m] of every member = the count[m] elements member m sends. send may lie in recv at
 * offset[rank]. */
moe_status moe_all_gather_v(struct moe_group g, struct moe_stream *s, const void *send, void *recv,
                            const int64_t *count, const int64_t *offset, moe_dtype dtype,
                            struct moe_request *request);
/* recv (count[rank] elements) = sum over members of their send + offset[rank]. recv may be
 * send + offset[rank]; send is undefined afterwards then. */
moe_status moe_reduce_scatter_v(struct moe_group g, struct moe_stream *s, const void *send,
                                void *recv, const int64_t *count, const int64_t *offset,
                                moe_dtype dtype, struct moe_request *request);
/* Member m gets send_count[m] elements from send + send_offset[m]; recv_count[m] from it arrive at
 * recv + recv_offset[m]. */
moe_status moe_all_to_all_v(struct moe_group g, struct moe_stream *s, const void *send,
                            const int64_t *send_count, const int64_t *send_offset, void *recv,
                            const int64_t *recv_count, const int64_t *recv_offset, moe_dtype dtype,
                            struct moe_request *request);
moe_status moe_broadcast(struct moe_group g, struct moe_stream *s, void *x, int64_t n,
                         moe_dtype dtype, int32_t root, struct moe_request *request);
/* Point to point between members; matched in order per pair. */
moe_status moe_send(struct moe_group g, struct moe_stream *s, const void *x, int64_t n,
                    moe_dtype dtype, int32_t peer, struct moe_request *request);
moe_status moe_recv(struct moe_group g, struct moe_stream *s, void *x, int64_t n, moe_dtype dtype,
                    int32_t peer, struct moe_request *request);
moe_status moe_barrier(struct moe_group g, struct moe_stream *s);
moe_status moe_comm_wait(struct moe_stream *s, struct moe_request *request);
/* Moves what was started on. Not needed for it to end, but transfers go on only inside of calls
 * like this one where nothing else moves them (MPI). Cheap. */
void moe_comm_progress(struct moe_world *world);

/* The worst status of all members, on all of them, with one text (moe_ctx_agree). Blocks. */
moe_status moe_comm_agree(struct moe_group g, struct moe_stream *s, moe_status mine);

#endif
