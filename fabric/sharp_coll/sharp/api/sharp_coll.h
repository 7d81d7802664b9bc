/* The C interface of libsharp_coll.so.5 of SHARP 3.x: names, values and layouts, so that programs written for NVIDIA
   SHARP compile and run with the library of this folder.

   All ranks of a communicator call its collectives in the same order with matching arguments. Functions return
   SHARP_COLL_SUCCESS (0) or a negative sharp_error_no unless their description says otherwise. */
#ifndef PLUGFEST_SHARP_API_SHARP_COLL_H
#define PLUGFEST_SHARP_API_SHARP_COLL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sharp_error_no {
  SHARP_COLL_SUCCESS = 0,
  SHARP_COLL_ERROR = -1,     /* a node, a rank or the manager was lost while the communicator was in use */
  SHARP_COLL_ENOT_SUPP = -2, /* a type, an operator or a kind of memory that the fabric does not reduce */
  SHARP_COLL_ENOMEM = -3,
  SHARP_COLL_EGROUP_ALLOC = -4,
  SHARP_COLL_ECONN_TREE = -5,
  SHARP_COLL_EGROUP_JOIN = -6,
  SHARP_COLL_EQUOTA = -7,     /* the tree has no free group or no free outstanding operation (OST) */
  SHARP_COLL_ESESS_INIT = -8, /* no aggregation manager */
  SHARP_COLL_EDEV = -9,       /* no such device, or a device without an address */
  SHARP_COLL_EINVAL = -10,
  SHARP_COLL_EJOB_CREATE = -11,
  SHARP_COLL_ETREE_INFO = -12,
  SHARP_COLL_ENOTREE = -13, /* no aggregation tree reaches all ranks */
  SHARP_COLL_EGROUP_ID = -14,
  SHARP_COLL_EOOB = -15, /* an out-of-band collective of the caller failed */
  SHARP_COLL_EGROUP_MCAST = -16,
  SHARP_COLL_EGROUP_TRIM = -17,
  SHARP_COLL_ELOCK_FAILED = -18, /* another group holds the streaming lock (SAT) of the tree */
  SHARP_COLL_ELOCK_DENIED = -19,
  SHARP_COLL_ENO_RESOURCE = -20
};

enum sharp_datatype {
  SHARP_DTYPE_UNSIGNED = 0,
  SHARP_DTYPE_INT = 1,
  SHARP_DTYPE_UNSIGNED_LONG = 2,
  SHARP_DTYPE_LONG = 3,
  SHARP_DTYPE_FLOAT = 4,
  SHARP_DTYPE_DOUBLE = 5,
  SHARP_DTYPE_UNSIGNED_SHORT = 6,
  SHARP_DTYPE_SHORT = 7,
  SHARP_DTYPE_FLOAT_SHORT = 8, /* IEEE 754 binary16 */
  SHARP_DTYPE_BFLOAT16 = 9,
  SHARP_DTYPE_UINT8 = 10,
  SHARP_DTYPE_INT8 = 11,
  SHARP_DTYPE_NULL = 12
};

enum sharp_reduce_op {
  SHARP_OP_MAX = 0,
  SHARP_OP_MIN = 1,
  SHARP_OP_SUM = 2,
  SHARP_OP_PROD = 3,
  SHARP_OP_LAND = 4,
  SHARP_OP_BAND = 5,
  SHARP_OP_LOR = 6,
  SHARP_OP_BOR = 7,
  SHARP_OP_LXOR = 8,
  SHARP_OP_BXOR = 9,
  SHARP_OP_MAXLOC = 10,
  SHARP_OP_MINLOC = 11,
  SHARP_OP_NULL = 12
};

enum sharp_aggregation_mode {
  SHARP_AGGREGATION_NONE = 0, /* the library chooses */
  SHARP_AGGREGATION_DATAGRAM = 1,
  SHARP_AGGREGATION_STREAMING = 2
};

enum sharp_data_buffer_type {
  SHARP_DATA_BUFFER = 0,
  SHARP_DATA_IOV = 1 /* ENOT_SUPP, as in NVIDIA's library */
};

enum sharp_data_memory_type {
  SHARP_MEM_TYPE_HOST = 0,
  SHARP_MEM_TYPE_CUDA = 1, /* here: memory that the CPU can access, as the emulated device memory of `plugfest nccl` */
  SHARP_MEM_TYPE_LAST = 2
};

/* Bits of sharp_coll_caps.support_mask.feature_mask. */
enum sharp_job_features {
  SHARP_FEATURE_LLT = 1,
  SHARP_FEATURE_REPRODUCIBLE = 2,
  SHARP_FEATURE_SAT = 4,
  SHARP_FEATURE_SAT_EXCLUSIVE_LOCK = 8
};

/* Bits of sharp_coll_config.flags. */
enum sharp_coll_init_flags {
  SHARP_COLL_HIDE_ERRORS = 1, /* print nothing */
  SHARP_COLL_DISABLE_LAZY_GROUP_RESOURCE_ALLOC = 2
};

/* Bits of sharp_coll_reg_params.field_mask. */
enum sharp_coll_reg_fields { SHARP_COLL_REG_FIELD_DMABUF_FD = 1, SHARP_COLL_REG_FIELD_DMABUF_OFFSET = 2 };

#define SHARP_COLL_DATA_MAX_IOV 15

struct sharp_coll_context;
struct sharp_coll_comm;

struct sharp_coll_config {
  const char* ib_dev_list;     /* "DEV:PORT[,DEV:PORT…]", the first one is used; NULL or "": the first device */
  int user_progress_num_polls; /* polls of a blocking call between two calls of progress_func */
  int coll_timeout;            /* ms without a result until a collective fails; -1: no limit */
  uint32_t flags;              /* sharp_coll_init_flags */
  int reserved[3];
};

/* Collectives of the caller, which need no fabric. `context` is the oob_ctx of the context or the communicator. All
   return 0 on success. */
struct sharp_coll_out_of_band_colls {
  int (*bcast)(void* context, void* buffer, int len, int root);
  int (*barrier)(void* context);
  int (*gather)(void* context, int root, void* sbuf, void* rbuf,
                int len); /* rbuf: len bytes for each rank, root only */
};

struct sharp_coll_comm_init_spec {
  int rank;
  int size;
  void* oob_ctx;
  const uint32_t* group_world_ranks; /* may be NULL; not used here */
  int reserved[2];
};

struct sharp_coll_init_spec {
  uint64_t job_id; /* the same on all ranks */
  int world_rank;
  int world_size;
  int (*progress_func)(void); /* may be NULL */
  int group_channel_idx;
  struct sharp_coll_config config;
  struct sharp_coll_out_of_band_colls oob_colls;
  int world_local_rank;
  int enable_thread_support; /* not 0: several threads may call functions of one context */
  void* oob_ctx;
  int reserved[4];
};

struct sharp_coll_caps {
  int sharp_pkt_version;
  uint64_t reserved[2];
  struct {
    uint64_t dtypes;     /* bit 1 << sharp_datatype */
    uint64_t tag_dtypes; /* types of the locations of MAXLOC and MINLOC */
    uint64_t reduce_ops; /* bit 1 << sharp_reduce_op */
    uint64_t feature_mask;
    uint64_t reserved[4];
  } support_mask;
  struct {
    int max_osts;
    int user_data_per_ost; /* bytes */
    int max_groups;
    int max_group_channels;
    int osts_per_group;
  } resources;
};

struct sharp_data_buffer {
  void* ptr;
  size_t length; /* bytes */
  void* mem_handle;
};

struct sharp_data_iov {
  unsigned count;
  struct sharp_data_buffer* vector;
};

struct sharp_coll_data_desc {
  enum sharp_data_buffer_type type;
  enum sharp_data_memory_type mem_type;
  int reserved[2];
  union {
    struct sharp_data_buffer buffer;
    struct sharp_data_iov iov;
  };
};

/* For allreduce, reduce and reduce-scatter. */
struct sharp_coll_reduce_spec {
  int root; /* reduce only */
  struct sharp_coll_data_desc sbuf_desc;
  struct sharp_coll_data_desc rbuf_desc;
  enum sharp_datatype dtype;
  size_t length; /* elements; reduce-scatter: of the memory window of this call */
  enum sharp_reduce_op op;
  enum sharp_datatype tag_dtype; /* MAXLOC and MINLOC only */
  enum sharp_aggregation_mode aggr_mode;
  int stream_lock_batch_size;
  size_t offset; /* reduce-scatter only: bytes before the memory window of this call */
  int reserved[2];
};

/* For allgather: the memory window [offset, offset + size) of the concatenation of all ranks' blocks. */
struct sharp_coll_gather_spec {
  struct sharp_coll_data_desc sbuf_desc; /* ptr: first byte of the own block inside the window; length: of the block */
  struct sharp_coll_data_desc rbuf_desc; /* ptr: first byte of the window */
  enum sharp_datatype dtype;
  size_t size;   /* elements of dtype */
  size_t offset; /* bytes */
  int reserved[4];
};

struct sharp_coll_bcast_spec {
  int root;
  struct sharp_coll_data_desc buf_desc;
  size_t size; /* bytes */
  int reserved[4];
};

struct sharp_coll_reg_params {
  uint64_t field_mask; /* sharp_coll_reg_fields; unknown bits are ignored */
  int dmabuf_fd;
  size_t dmabuf_offset;
};

enum config_print_flags { SHARP_COLL_PRINT_CONFIG = 1 };

extern const struct sharp_coll_config sharp_coll_default_config;

/* Collective over the world of `spec`. Reads SHARP_COLL_… from the environment. */
int sharp_coll_init(struct sharp_coll_init_spec* spec, struct sharp_coll_context** context);
/* Local. The communicators of the context must have been destroyed. */
int sharp_coll_finalize(struct sharp_coll_context* context);
int sharp_coll_caps_query(struct sharp_coll_context* context, struct sharp_coll_caps* caps);
/* Collective over the ranks of `spec`; on failure all ranks return the same code. */
int sharp_coll_comm_init(struct sharp_coll_context* context, struct sharp_coll_comm_init_spec* spec,
                         struct sharp_coll_comm** comm);
/* Local. Ends the communicator's requests, which must still be freed. */
int sharp_coll_comm_destroy(struct sharp_coll_comm* comm);
/* Makes progress on all communicators of the context. */
int sharp_coll_progress(struct sharp_coll_context* context);

int sharp_coll_reg_mr(struct sharp_coll_context* context, void* buffer, size_t length, void** mr);
int sharp_coll_reg_mr_v2(struct sharp_coll_context* context, void* buffer, size_t length,
                         const struct sharp_coll_reg_params* params, void** mr);
/* The memory may have been unmapped. */
int sharp_coll_dereg_mr(struct sharp_coll_context* context, void* mr);

int sharp_coll_do_barrier(struct sharp_coll_comm* comm);
int sharp_coll_do_allreduce(struct sharp_coll_comm* comm, struct sharp_coll_reduce_spec* spec);
int sharp_coll_do_reduce(struct sharp_coll_comm* comm, struct sharp_coll_reduce_spec* spec);
int sharp_coll_do_reduce_scatter(struct sharp_coll_comm* comm, struct sharp_coll_reduce_spec* spec);
int sharp_coll_do_allgather(struct sharp_coll_comm* comm, struct sharp_coll_gather_spec* spec);
int sharp_coll_do_bcast(struct sharp_coll_comm* comm, struct sharp_coll_bcast_spec* spec);

/* Post a collective and return at once. The caller frees the handle with sharp_coll_req_free(). */
int sharp_coll_do_barrier_nb(struct sharp_coll_comm* comm, void** handle);
int sharp_coll_do_allreduce_nb(struct sharp_coll_comm* comm, struct sharp_coll_reduce_spec* spec, void** handle);
int sharp_coll_do_reduce_nb(struct sharp_coll_comm* comm, struct sharp_coll_reduce_spec* spec, void** handle);
int sharp_coll_do_reduce_scatter_nb(struct sharp_coll_comm* comm, struct sharp_coll_reduce_spec* spec, void** handle);
int sharp_coll_do_allgather_nb(struct sharp_coll_comm* comm, struct sharp_coll_gather_spec* spec, void** handle);
int sharp_coll_do_bcast_nb(struct sharp_coll_comm* comm, struct sharp_coll_bcast_spec* spec, void** handle);

/* Makes progress. Returns 0 while the request is in progress, 1 when it is complete, a negative code if it failed. */
int sharp_coll_req_test(void* handle);
/* Waits until the request is complete. Returns its result. */
int sharp_coll_req_wait(void* handle);
/* Frees a handle. A request in progress goes on, and its buffers stay in use until it is complete. */
int sharp_coll_req_free(void* handle);

/* A text for a code; never NULL. */
const char* sharp_coll_strerror(int error);
/* Prints the settings that the environment can change, one line for each. `flags` and `program` are not used. */
int sharp_coll_print_config(FILE* stream, enum config_print_flags flags, const char* program);
/* Prints the counters of the context's communicators to standard error. */
int sharp_coll_dump_stats(struct sharp_coll_context* context);

#ifdef __cplusplus
}
#endif

#endif
