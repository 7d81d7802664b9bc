// A collComm: a team, the memory that it has registered, and its contexts.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "plugins/mesh/one_sided/context.h"
#include "plugins/mesh/one_sided/team.h"
#include "plugins/mesh/transfer/registrations.h"

namespace mesh::one_sided {

class CollComm;

/// The result of createContext; NCCL's ginCtx and rmaCtx point to it.
struct ContextHandle {
  CollComm* comm = nullptr;
  std::size_t slot = 0;
  std::unique_ptr<Context> context;
  abi::DeviceHandle device = {};  ///< the handle for versions that ask for it
};

/// Collective members wait until all ranks have called them, in the same order. Thread safety: one thread at a time
/// calls collective members and close_context(). Meanwhile, one other thread may use each context.
class CollComm {
 public:
  /// Maximum number of open context objects.
  static constexpr std::size_t kMaxContexts = 256;

  /// Collective. Errors: Failure.
  explicit CollComm(std::unique_ptr<Team> team);
  ~CollComm();
  CollComm(const CollComm&) = delete;
  CollComm& operator=(const CollComm&) = delete;

  /// Errors: Failure if `pointer` is not an open collComm.
  static CollComm& of(void* pointer);
  /// Whether a connection of the context has failed; false for any other pointer.
  static bool has_error(const void* context);
  /// Closes all collComms when the library is unloaded.
  static void abandon_all();

  /// Collective. Registers a range of each rank. Errors: Failure.
  Window* add_window(const MemoryToRegister& memory);
  /// The NIC does not access the memory after the call. Errors: Failure for memory of another collComm.
  void remove_window(Window* window);

  /// Collective. Errors: Failure.
  ContextHandle* open_context(const ContextConfig& config, const Transport& transport);
  void close_context(ContextHandle* handle);
  /// The context of versions whose calls name none. Errors: Failure if there is none.
  ContextHandle& default_context();

  /// Whether the request is done. Errors: Failure, for example for an unknown request.
  bool test(const void* request);

  /// The pointer that stands for operation `number` of a connection.
  static void* request(const ContextHandle& handle, std::size_t connection, std::uint32_t number);

 private:
  const std::unique_ptr<Team> team_;
  std::vector<std::shared_ptr<const Device>> devices_;  ///< each NIC of the links once
  std::mutex mutex_;                                    ///< protects `windows_`
  std::unordered_map<Window*, std::unique_ptr<Window>> windows_;
  std::array<std::atomic<ContextHandle*>, kMaxContexts> contexts_ = {};
};

}  // namespace mesh::one_sided
