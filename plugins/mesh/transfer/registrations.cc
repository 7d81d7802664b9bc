#include "plugins/mesh/transfer/registrations.h"

#include <algorithm>
#include <span>
#include <string>

#include "plugins/mesh/device/gpu.h"
#include "plugins/mesh/log.h"
#include "plugins/mesh/transfer/queue_pair.h"

namespace mesh {

std::unique_ptr<RegionCache::Range> register_range(const Device& device, const MemoryToRegister& memory, int access) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data);
  auto range = device.regions().add(begin, memory.bytes, access, [&] {
    if (memory.dma_buf < 0) return ibv_reg_mr(device.protection_domain(), memory.data, memory.bytes, access);
    const Pages pages = pages_of(begin, memory.bytes);
    return ibv_reg_dmabuf_mr(device.protection_domain(), memory.dma_buf_offset, pages.bytes, pages.begin,
                             memory.dma_buf, access);
  });
  if (range) return range;
  throw system_failure("register " + std::to_string(memory.bytes) + " bytes of " + (memory.of_gpu ? "GPU " : "") +
                       "memory with " + device.name() +
                       (memory.of_gpu ? " (NCCL_MESH_CUDA=0 on all ranks copies through host memory)"
                                      : " (is it mapped, is `ulimit -l` high enough?)"));
}

Registrations::Registrations(std::vector<std::shared_ptr<const Device>> devices, int access)
    : access_(access), devices_(std::move(devices)) {}

Registrations::~Registrations() { close(); }

Registration* Registrations::add(const MemoryToRegister& memory) {
  auto registration = std::make_unique<Registration>();
  registration->begin = reinterpret_cast<std::uintptr_t>(memory.data);
  registration->size = memory.bytes;
  registration->of_gpu = memory.of_gpu;
  // A flush reads GPU memory.
  const bool read = memory.of_gpu && (access_ & IBV_ACCESS_REMOTE_WRITE) != 0;
  const int access = access_ | (read ? IBV_ACCESS_REMOTE_READ : 0);
  {
    const std::lock_guard lock(mutex_);
    registration->devices = devices_;
  }
  const auto& devices = registration->devices;
  if (devices.empty()) throw Failure(Result::kInternalError, "regMr: the connection is closed");
  for (std::size_t lane = 0; lane < devices.size() && memory.bytes > 0; ++lane) {
    const auto same =
        static_cast<std::size_t>(std::find(devices.begin(), devices.end(), devices[lane]) - devices.begin());
    if (same == lane) {
      registration->ranges.push_back(register_range(*devices[lane], memory, access));
      registration->local_keys[lane] = registration->ranges.back()->region().lkey;
      registration->remote_keys[lane] = registration->ranges.back()->region().rkey;
    } else {
      registration->local_keys[lane] = registration->local_keys[same];
      registration->remote_keys[lane] = registration->remote_keys[same];
    }
  }
  const std::lock_guard lock(mutex_);
  registrations_.insert(registration.get());
  return registration.release();
}

bool Registrations::is_shared(const Registration* registration) {
  const std::lock_guard lock(mutex_);
  return registrations_.contains(registration) && std::any_of(registration->ranges.begin(), registration->ranges.end(),
                                                              [](const auto& entry) { return entry->is_shared(); });
}

void Registrations::remove(Registration* registration) {
  {
    const std::lock_guard lock(mutex_);
    if (registrations_.erase(registration) == 0)
      throw Failure(Result::kInvalidArgument, "deregMr: the handle was not returned by regMr of this connection");
  }
  delete registration;
}

bool Registrations::use_locally(std::uint64_t address, std::uint64_t bytes, std::uint32_t key,
                                const std::function<void()>& use) {
  return use_with(&Registration::local_keys, address, bytes, key, use);
}

bool Registrations::use_remotely(std::uint64_t address, std::uint64_t bytes, std::uint32_t key,
                                 const std::function<void()>& use) {
  return (access_ & IBV_ACCESS_REMOTE_WRITE) != 0 && use_with(&Registration::remote_keys, address, bytes, key, use);
}

bool Registrations::use_with(Keys Registration::*keys, std::uint64_t address, std::uint64_t bytes, std::uint32_t key,
                             const std::function<void()>& use) {
  const std::lock_guard lock(mutex_);
  const bool may = std::any_of(registrations_.begin(), registrations_.end(), [&](const Registration* registration) {
    return registration->size > 0 && (registration->*keys).front() == key &&
           registration->covers(reinterpret_cast<const void*>(address), bytes);
  });
  if (may) use();
  return may;
}

void Registrations::close() {
  const std::lock_guard lock(mutex_);
  for (const Registration* registration : registrations_) delete registration;
  registrations_.clear();
  devices_.clear();
}

class Flushes::Reader {
 public:
  explicit Reader(const Lane& lane)
      : target_(lane.shared_device(), 1),
        queue_pair_(lane.shared_device(), lane.endpoint().gid, {.send = kMax, .receive = 1, .reads = 1},
                    IBV_ACCESS_REMOTE_READ) {
    // No packet leaves the NIC.
    queue_pair_.connect(queue_pair_.endpoint(), {.timeout = 16, .retry_count = 7});
  }

  const std::string& nic() const { return queue_pair_.device().name(); }

  int post(std::uint64_t id, std::uint64_t address, std::uint32_t remote_key) {
    ibv_sge entry = {
        .addr = reinterpret_cast<std::uintptr_t>(target_.data()), .length = 1, .lkey = target_.local_key()};
    ibv_send_wr read = {};
    read.wr_id = id;
    read.sg_list = &entry;
    read.num_sge = 1;
    read.opcode = IBV_WR_RDMA_READ;
    read.send_flags = IBV_SEND_SIGNALED;
    read.wr.rdma.remote_addr = address;
    read.wr.rdma.rkey = remote_key;
    return queue_pair_.post_send(&read);
  }

  int poll(std::span<ibv_wc> completions) { return queue_pair_.poll(completions); }

 private:
  StagingMemory target_;
  QueuePair queue_pair_;
};

Flushes::Flushes() = default;
Flushes::~Flushes() = default;

void Flushes::prepare(const std::vector<Lane>& lanes) {
  const std::lock_guard lock(mutex_);
  if (!readers_.empty() || lanes.empty()) return;
  std::vector<std::unique_ptr<Reader>> readers;
  for (auto lane = lanes.begin(); lane != lanes.end(); ++lane) {
    if (lane->relayed())
      throw Failure(Result::kInvalidUsage, "regMr: relays do not reach GPU memory; set NCCL_MESH_CUDA=0 on all ranks");
    const bool is_new = std::none_of(lanes.begin(), lane,
                                     [&](const Lane& other_lane) { return &other_lane.device() == &lane->device(); });
    readers.push_back(is_new ? std::make_unique<Reader>(*lane) : nullptr);
  }
  readers_ = std::move(readers);
}

void Flushes::close() { readers_.clear(); }

std::size_t Flushes::start(std::uint64_t address, const Registration& memory) {
  const std::size_t index = free_.take();
  Flush& taken = flushes_[index];
  taken = {.active = true, .generation = static_cast<std::uint16_t>(taken.generation + 1), .reads = 0};
  for (std::size_t lane = 0; lane < readers_.size(); ++lane) {
    if (!readers_[lane]) continue;
    if (const int error = readers_[lane]->post(index, address, memory.remote_keys[lane]))
      throw Failure(Result::kSystemError, "cannot post a flush to " + readers_[lane]->nic() + ": " + error_text(error));
    ++taken.reads;
  }
  return index;
}

void Flushes::release(std::size_t index) {
  flushes_[index].active = false;
  free_.give_back(index);
}

void Flushes::poll() {
  for (const std::unique_ptr<Reader>& reader : readers_) {
    std::array<ibv_wc, 16> completions;
    const int count = reader ? reader->poll(completions) : 0;
    if (count < 0) throw Failure(Result::kSystemError, "cannot poll the flushes of " + reader->nic());
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
      if (completion.status != IBV_WC_SUCCESS) {
        throw Failure(Result::kSystemError, "a flush of GPU memory through " + reader->nic() +
                                                " failed: " + ibv_wc_status_str(completion.status));
      }
      --flushes_[completion.wr_id].reads;
    }
  }
}

}  // namespace mesh
