// The functions of sharp_coll.h. No exception leaves them.
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "fabric/sharp_coll/context.h"
#include "fabric/sharp_coll/failure.h"
#include "fabric/sharp_coll/layout.h"
#include "fabric/sharp_coll/sharp/api/sharp_coll.h"
#include "fabric/sharp_coll/transfer.h"

using namespace plugfest::sharp_coll;

struct sharp_coll_context {
  std::shared_ptr<Context> impl;
};

struct sharp_coll_comm {
  std::shared_ptr<Context> context;
  std::shared_ptr<Comm> impl;
};

namespace {

// The object that a handle points to. The communicator and the context may be destroyed before it.
struct Request {
  std::shared_ptr<Context> context;
  std::shared_ptr<Comm> comm;
  std::shared_ptr<Operation> operation;
};

// ENOT_SUPP is not logged as an error, because UCC treats it as a normal answer.
LogLevel level_of(int code) { return code == SHARP_COLL_ENOT_SUPP ? LogLevel::kInfo : LogLevel::kError; }

// Runs `body`, which may return a status; logs failures and returns their code.
template <typename Body>
int status_of(const Log& log, Body body) noexcept {
  try {
    return body();
  } catch (const Failure& failure) {
    log.write(level_of(failure.code()), failure.what());
    return failure.code();
  } catch (const std::bad_alloc&) {
    return SHARP_COLL_ENOMEM;
  } catch (const std::exception& error) {
    log.write(LogLevel::kError, error.what());
    return SHARP_COLL_ERROR;
  } catch (...) {
    return SHARP_COLL_ERROR;
  }
}

// Posts the transfer that `transfer_of(place)` describes.
template <typename TransferOf>
int post(sharp_coll_comm* comm, const void* spec, void** handle, TransferOf transfer_of) noexcept {
  if (comm == nullptr || spec == nullptr || handle == nullptr) return SHARP_COLL_EINVAL;
  *handle = nullptr;
  return status_of(comm->context->log(), [&] {
    auto request = std::make_unique<Request>(Request{comm->context, comm->impl, nullptr});
    request->operation = comm->context->post(*comm->impl, transfer_of(comm->impl->place()));
    *handle = request.release();
    return SHARP_COLL_SUCCESS;
  });
}

// Posts a collective by `post_to(&handle)` and waits for it.
template <typename PostTo>
int finish(PostTo post_to) noexcept {
  void* handle = nullptr;
  const int posted = post_to(&handle);
  if (posted != SHARP_COLL_SUCCESS) return posted;
  const int status = sharp_coll_req_wait(handle);
  sharp_coll_req_free(handle);
  return status;
}

constexpr std::uint64_t bits_below(int count) { return (std::uint64_t{1} << count) - 1; }

}  // namespace

extern "C" {

// In C++, a constant has internal linkage without `extern`, and a program that copies it needs its address.
extern const sharp_coll_config sharp_coll_default_config = {
    .ib_dev_list = nullptr, .user_progress_num_polls = 128, .coll_timeout = -1, .flags = 0, .reserved = {}};

int sharp_coll_init(sharp_coll_init_spec* spec, sharp_coll_context** context) {
  if (spec == nullptr || context == nullptr) return SHARP_COLL_EINVAL;
  *context = nullptr;
  const auto log = [&]() noexcept {
    const bool hidden = (spec->config.flags & SHARP_COLL_HIDE_ERRORS) != 0;
    return Log(hidden ? -1 : settings_of_environment().log_level, spec->world_rank);
  };
  return status_of(log(), [&] {
    *context = new sharp_coll_context{std::make_shared<Context>(*spec)};
    return SHARP_COLL_SUCCESS;
  });
}

int sharp_coll_finalize(sharp_coll_context* context) {
  if (context == nullptr) return SHARP_COLL_EINVAL;
  delete context;
  return SHARP_COLL_SUCCESS;
}

int sharp_coll_caps_query(sharp_coll_context* context, sharp_coll_caps* caps) {
  if (context == nullptr || caps == nullptr) return SHARP_COLL_EINVAL;
  *caps = {};
  caps->sharp_pkt_version = 1;
  caps->support_mask.dtypes = bits_below(SHARP_DTYPE_NULL);
  caps->support_mask.reduce_ops = bits_below(SHARP_OP_MAXLOC);
  caps->support_mask.feature_mask =
      SHARP_FEATURE_LLT | SHARP_FEATURE_REPRODUCIBLE | SHARP_FEATURE_SAT | SHARP_FEATURE_SAT_EXCLUSIVE_LOCK;
  return SHARP_COLL_SUCCESS;
}

int sharp_coll_comm_init(sharp_coll_context* context, sharp_coll_comm_init_spec* spec, sharp_coll_comm** comm) {
  if (context == nullptr || spec == nullptr || comm == nullptr) return SHARP_COLL_EINVAL;
  *comm = nullptr;
  return status_of(context->impl->log(), [&] {
    *comm = new sharp_coll_comm{context->impl, context->impl->create_comm(*spec)};
    return SHARP_COLL_SUCCESS;
  });
}

int sharp_coll_comm_destroy(sharp_coll_comm* comm) {
  if (comm == nullptr) return SHARP_COLL_EINVAL;
  return status_of(comm->context->log(), [&] {
    const std::unique_ptr<sharp_coll_comm> owned(comm);
    owned->context->destroy_comm(owned->impl);
    return SHARP_COLL_SUCCESS;
  });
}

int sharp_coll_progress(sharp_coll_context* context) {
  if (context == nullptr) return SHARP_COLL_EINVAL;
  return status_of(context->impl->log(), [&] {
    context->impl->progress();
    return SHARP_COLL_SUCCESS;
  });
}

int sharp_coll_reg_mr(sharp_coll_context* context, void* buffer, size_t length, void** mr) {
  if (context == nullptr || mr == nullptr) return SHARP_COLL_EINVAL;
  *mr = nullptr;
  return status_of(context->impl->log(), [&] {
    *mr = context->impl->add_registration(buffer, length);
    return SHARP_COLL_SUCCESS;
  });
}

// A DMA-BUF needs no registration of its own: only emulated device memory has one here, and its address is valid on the
// host.
int sharp_coll_reg_mr_v2(sharp_coll_context* context, void* buffer, size_t length, const sharp_coll_reg_params*,
                         void** mr) {
  return sharp_coll_reg_mr(context, buffer, length, mr);
}

int sharp_coll_dereg_mr(sharp_coll_context* context, void* mr) {
  if (context == nullptr || mr == nullptr) return SHARP_COLL_EINVAL;
  return status_of(context->impl->log(), [&] {
    context->impl->remove_registration(mr);
    return SHARP_COLL_SUCCESS;
  });
}

int sharp_coll_do_barrier_nb(sharp_coll_comm* comm, void** handle) {
  return post(comm, comm, handle, [](Place) { return barrier(); });
}

int sharp_coll_do_allreduce_nb(sharp_coll_comm* comm, sharp_coll_reduce_spec* spec, void** handle) {
  return post(comm, spec, handle, [&](Place) { return allreduce_of(*spec); });
}

int sharp_coll_do_reduce_nb(sharp_coll_comm* comm, sharp_coll_reduce_spec* spec, void** handle) {
  return post(comm, spec, handle, [&](Place place) { return reduce_of(*spec, place); });
}

int sharp_coll_do_reduce_scatter_nb(sharp_coll_comm* comm, sharp_coll_reduce_spec* spec, void** handle) {
  return post(comm, spec, handle, [&](Place place) { return reduce_scatter_of(*spec, place); });
}

int sharp_coll_do_allgather_nb(sharp_coll_comm* comm, sharp_coll_gather_spec* spec, void** handle) {
  return post(comm, spec, handle, [&](Place place) { return allgather_of(*spec, place); });
}

int sharp_coll_do_bcast_nb(sharp_coll_comm* comm, sharp_coll_bcast_spec* spec, void** handle) {
  return post(comm, spec, handle, [&](Place place) { return bcast_of(*spec, place); });
}

int sharp_coll_do_barrier(sharp_coll_comm* comm) {
  return finish([&](void** handle) { return sharp_coll_do_barrier_nb(comm, handle); });
}

int sharp_coll_do_allreduce(sharp_coll_comm* comm, sharp_coll_reduce_spec* spec) {
  return finish([&](void** handle) { return sharp_coll_do_allreduce_nb(comm, spec, handle); });
}

int sharp_coll_do_reduce(sharp_coll_comm* comm, sharp_coll_reduce_spec* spec) {
  return finish([&](void** handle) { return sharp_coll_do_reduce_nb(comm, spec, handle); });
}

int sharp_coll_do_reduce_scatter(sharp_coll_comm* comm, sharp_coll_reduce_spec* spec) {
  return finish([&](void** handle) { return sharp_coll_do_reduce_scatter_nb(comm, spec, handle); });
}

int sharp_coll_do_allgather(sharp_coll_comm* comm, sharp_coll_gather_spec* spec) {
  return finish([&](void** handle) { return sharp_coll_do_allgather_nb(comm, spec, handle); });
}

int sharp_coll_do_bcast(sharp_coll_comm* comm, sharp_coll_bcast_spec* spec) {
  return finish([&](void** handle) { return sharp_coll_do_bcast_nb(comm, spec, handle); });
}

int sharp_coll_req_test(void* handle) {
  if (handle == nullptr) return SHARP_COLL_EINVAL;
  const Request& request = *static_cast<const Request*>(handle);
  return status_of(request.context->log(), [&] {
    const int status = request.context->test(*request.comm, *request.operation);
    return status == Operation::kInProgress ? 0 : status == SHARP_COLL_SUCCESS ? 1 : status;
  });
}

int sharp_coll_req_wait(void* handle) {
  if (handle == nullptr) return SHARP_COLL_EINVAL;
  const Request& request = *static_cast<const Request*>(handle);
  return status_of(request.context->log(), [&] { return request.context->wait(*request.comm, *request.operation); });
}

int sharp_coll_req_free(void* handle) {
  if (handle == nullptr) return SHARP_COLL_EINVAL;
  delete static_cast<Request*>(handle);
  return SHARP_COLL_SUCCESS;
}

const char* sharp_coll_strerror(int error) {
  switch (error) {
    case SHARP_COLL_SUCCESS:
      return "success";
    case SHARP_COLL_ERROR:
      return "the group has failed";
    case SHARP_COLL_ENOT_SUPP:
      return "not supported";
    case SHARP_COLL_ENOMEM:
      return "out of memory";
    case SHARP_COLL_EGROUP_ALLOC:
      return "cannot allocate a group";
    case SHARP_COLL_ECONN_TREE:
      return "cannot connect to the aggregation tree";
    case SHARP_COLL_EGROUP_JOIN:
      return "cannot join the group";
    case SHARP_COLL_EQUOTA:
      return "the quota of the aggregation tree is used up";
    case SHARP_COLL_ESESS_INIT:
      return "no aggregation manager";
    case SHARP_COLL_EDEV:
      return "no usable device";
    case SHARP_COLL_EINVAL:
      return "invalid argument";
    case SHARP_COLL_EJOB_CREATE:
      return "cannot create the job";
    case SHARP_COLL_ETREE_INFO:
      return "cannot read the aggregation tree";
    case SHARP_COLL_ENOTREE:
      return "no aggregation tree reaches all ranks";
    case SHARP_COLL_EGROUP_ID:
      return "unknown group";
    case SHARP_COLL_EOOB:
      return "an out-of-band collective failed";
    case SHARP_COLL_EGROUP_MCAST:
      return "cannot create a multicast group";
    case SHARP_COLL_EGROUP_TRIM:
      return "cannot trim the group";
    case SHARP_COLL_ELOCK_FAILED:
      return "another group holds the SAT lock of the tree";
    case SHARP_COLL_ELOCK_DENIED:
      return "the SAT lock was denied";
    case SHARP_COLL_ENO_RESOURCE:
      return "out of resources";
    default:
      return "unknown error";
  }
}

int sharp_coll_print_config(FILE* stream, enum config_print_flags, const char*) {
  if (stream == nullptr) return SHARP_COLL_EINVAL;
  return status_of(Log(), [&] {
    const std::string text = settings_of_environment().text();
    return std::fputs(text.c_str(), stream) < 0 ? SHARP_COLL_ERROR : SHARP_COLL_SUCCESS;
  });
}

int sharp_coll_dump_stats(sharp_coll_context* context) {
  if (context == nullptr) return SHARP_COLL_EINVAL;
  return status_of(context->impl->log(), [&] {
    context->impl->log().write(LogLevel::kFatal, context->impl->statistics());
    return SHARP_COLL_SUCCESS;
  });
}

}  // extern "C"
