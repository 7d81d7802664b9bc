#include "fabric/sharp_coll/context.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "fabric/sharp_coll/device.h"
#include "fabric/sharp_coll/failure.h"
#include "fabric/sharp_coll/manager_connection.h"

namespace plugfest::sharp_coll {
namespace {

// Polls of a blocking call before it sleeps until a packet arrives.
constexpr int kPollsBeforeSleep = 200;

// Another thread may receive the packets that this thread waits for, so a sleep is short.
constexpr Nanoseconds kLongestSleep = 5'000'000;

bool is_hidden(const sharp_coll_config& config) { return (config.flags & SHARP_COLL_HIDE_ERRORS) != 0; }

Place checked_place(int rank, int size, const sharp_coll_out_of_band_colls& collectives) {
  if (size < 1 || rank < 0 || rank >= size)
    throw Failure(SHARP_COLL_EINVAL, "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                                         ": expected a rank from 0 to the number of ranks minus 1");
  if (size > 1 && (collectives.bcast == nullptr || collectives.gather == nullptr))
    throw Failure(SHARP_COLL_EINVAL, "oob_colls: bcast or gather is null: set both");
  return {rank, size};
}

}  // namespace

Context::Context(const sharp_coll_init_spec& spec)
    : out_of_band_(spec.oob_colls),
      user_progress_polls_(std::max(spec.config.user_progress_num_polls, 1)),
      user_progress_(spec.progress_func),
      process_(getpid()) {
  environment_.settings = settings_of_environment();
  environment_.job = spec.job_id;
  if (spec.config.coll_timeout > 0)
    environment_.result_timeout = static_cast<Nanoseconds>(spec.config.coll_timeout) * 1'000'000;
  log_ = Log(is_hidden(spec.config) ? -1 : environment_.settings.log_level, spec.world_rank);
  const OutOfBand world(out_of_band_, spec.oob_ctx, checked_place(spec.world_rank, spec.world_size, out_of_band_));
  world.attempt([&] {
    const char* const list = spec.config.ib_dev_list;
    const DevicePort port = find_device_port(list != nullptr ? list : "");
    environment_.address = port.address;
    if (spec.world_rank == 0 && spec.world_size > 1) ManagerConnection(environment_.settings.manager);
    log_.write(LogLevel::kInfo, "device " + port.device + ", job " + std::to_string(environment_.job));
  });
}

Context::~Context() {
  if (getpid() == process_ && environment_.settings.stats_dump_mode > 0) log_.write(LogLevel::kFatal, statistics());
}

void Context::check_process() const {
  if (getpid() != process_)
    throw Failure(SHARP_COLL_ERROR, "this process was forked from process " + std::to_string(process_) +
                                        ", which has the context: call sharp_coll_init() after fork()");
}

std::shared_ptr<Comm> Context::create_comm(const sharp_coll_comm_init_spec& spec) {
  check_process();
  const OutOfBand ranks(out_of_band_, spec.oob_ctx, checked_place(spec.rank, spec.size, out_of_band_));
  // Without the lock: the caller's collectives can take long.
  auto comm = std::make_shared<Comm>(environment_, ranks, log_);
  const std::lock_guard lock(mutex_);
  comms_.push_back(comm);
  return comm;
}

void Context::destroy_comm(const std::shared_ptr<Comm>& comm) {
  const std::lock_guard lock(mutex_);
  if (getpid() == process_) comm->leave();
  std::erase(comms_, comm);
}

std::shared_ptr<Operation> Context::post(Comm& comm, const Transfer& transfer) {
  check_process();
  const std::lock_guard lock(mutex_);
  return comm.post(transfer);
}

int Context::test(Comm& comm, const Operation& operation) {
  check_process();
  {
    const std::lock_guard lock(mutex_);
    if (operation.finished() || comm.progress() || operation.finished()) return operation.status;
  }
  // Callers poll in a loop; the nodes and other ranks that must work first may be waiting for this core.
  sched_yield();
  return Operation::kInProgress;
}

int Context::wait(Comm& comm, const Operation& operation) {
  for (int polls = 1;; ++polls) {
    const int status = test(comm, operation);
    if (status != Operation::kInProgress) return status;
    if (user_progress_ != nullptr && polls >= user_progress_polls_) {
      user_progress_();
      polls = 0;
    } else if (user_progress_ == nullptr && polls >= kPollsBeforeSleep) {
      sleep_until_work(comm);
      polls = kPollsBeforeSleep - 1;
    }
  }
}

void Context::sleep_until_work(const Comm& comm) const {
  Comm::Waiting waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting = comm.waiting();
  }
  const Nanoseconds rest = std::clamp<Nanoseconds>(waiting.deadline - now_ns(), 0, kLongestSleep);
  pollfd entries[] = {{waiting.socket, static_cast<short>(waiting.sends ? POLLIN | POLLOUT : POLLIN), 0},
                      {waiting.manager, POLLIN, 0}};
  const timespec timeout = {0, rest};
  ppoll(entries, 2, &timeout, nullptr);
}

void Context::progress() {
  check_process();
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Comm>& comm : comms_) comm->progress();
}

Registration* Context::add_registration(const void* address, std::size_t length) {
  if (address == nullptr) throw Failure(SHARP_COLL_EINVAL, "register memory: the address is null");
  auto registration = std::make_unique<Registration>(Registration{address, length});
  Registration* const handle = registration.get();
  const std::lock_guard lock(mutex_);
  registrations_.emplace(handle, std::move(registration));
  return handle;
}

void Context::remove_registration(const void* handle) {
  const std::lock_guard lock(mutex_);
  if (registrations_.erase(handle) == 0)
    throw Failure(SHARP_COLL_EINVAL,
                  "deregister memory: unknown handle: it was deregistered, or belongs to another context");
}

std::string Context::statistics() const {
  const std::lock_guard lock(mutex_);
  std::string text = "job " + std::to_string(environment_.job) + ":";
  for (const std::shared_ptr<Comm>& comm : comms_) text += " " + comm->statistics();
  return text;
}

}  // namespace plugfest::sharp_coll
