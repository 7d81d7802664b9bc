// Checks that the structures of sharp_coll.h have the layout of SHARP 3.x on 64-bit machines.
#pragma once

#include <cstddef>

#include "fabric/sharp_coll/sharp/api/sharp_coll.h"

namespace plugfest::sharp_coll {

static_assert(sizeof(sharp_coll_config) == 32);
static_assert(offsetof(sharp_coll_config, user_progress_num_polls) == 8);
static_assert(offsetof(sharp_coll_config, coll_timeout) == 12);
static_assert(offsetof(sharp_coll_config, flags) == 16);

static_assert(sizeof(sharp_coll_out_of_band_colls) == 24);
static_assert(offsetof(sharp_coll_out_of_band_colls, barrier) == 8);
static_assert(offsetof(sharp_coll_out_of_band_colls, gather) == 16);

static_assert(sizeof(sharp_coll_comm_init_spec) == 32);
static_assert(offsetof(sharp_coll_comm_init_spec, oob_ctx) == 8);
static_assert(offsetof(sharp_coll_comm_init_spec, group_world_ranks) == 16);

static_assert(sizeof(sharp_coll_init_spec) == 120);
static_assert(offsetof(sharp_coll_init_spec, world_rank) == 8);
static_assert(offsetof(sharp_coll_init_spec, progress_func) == 16);
static_assert(offsetof(sharp_coll_init_spec, group_channel_idx) == 24);
static_assert(offsetof(sharp_coll_init_spec, config) == 32);
static_assert(offsetof(sharp_coll_init_spec, oob_colls) == 64);
static_assert(offsetof(sharp_coll_init_spec, world_local_rank) == 88);
static_assert(offsetof(sharp_coll_init_spec, enable_thread_support) == 92);
static_assert(offsetof(sharp_coll_init_spec, oob_ctx) == 96);

static_assert(sizeof(sharp_coll_caps) == 112);
static_assert(offsetof(sharp_coll_caps, support_mask) == 24);
static_assert(offsetof(sharp_coll_caps, support_mask.reduce_ops) == 40);
static_assert(offsetof(sharp_coll_caps, support_mask.feature_mask) == 48);
static_assert(offsetof(sharp_coll_caps, resources) == 88);

static_assert(sizeof(sharp_coll_data_desc) == 40);
static_assert(offsetof(sharp_coll_data_desc, mem_type) == 4);
static_assert(offsetof(sharp_coll_data_desc, buffer) == 16);
static_assert(offsetof(sharp_coll_data_desc, iov.vector) == 24);

static_assert(sizeof(sharp_coll_reduce_spec) == 136);
static_assert(offsetof(sharp_coll_reduce_spec, sbuf_desc) == 8);
static_assert(offsetof(sharp_coll_reduce_spec, rbuf_desc) == 48);
static_assert(offsetof(sharp_coll_reduce_spec, dtype) == 88);
static_assert(offsetof(sharp_coll_reduce_spec, length) == 96);
static_assert(offsetof(sharp_coll_reduce_spec, op) == 104);
static_assert(offsetof(sharp_coll_reduce_spec, tag_dtype) == 108);
static_assert(offsetof(sharp_coll_reduce_spec, aggr_mode) == 112);
static_assert(offsetof(sharp_coll_reduce_spec, stream_lock_batch_size) == 116);
static_assert(offsetof(sharp_coll_reduce_spec, offset) == 120);

static_assert(sizeof(sharp_coll_gather_spec) == 120);
static_assert(offsetof(sharp_coll_gather_spec, rbuf_desc) == 40);
static_assert(offsetof(sharp_coll_gather_spec, dtype) == 80);
static_assert(offsetof(sharp_coll_gather_spec, size) == 88);
static_assert(offsetof(sharp_coll_gather_spec, offset) == 96);

static_assert(sizeof(sharp_coll_bcast_spec) == 72);
static_assert(offsetof(sharp_coll_bcast_spec, buf_desc) == 8);
static_assert(offsetof(sharp_coll_bcast_spec, size) == 48);

static_assert(sizeof(sharp_coll_reg_params) == 24);
static_assert(offsetof(sharp_coll_reg_params, dmabuf_fd) == 8);
static_assert(offsetof(sharp_coll_reg_params, dmabuf_offset) == 16);

}  // namespace plugfest::sharp_coll
