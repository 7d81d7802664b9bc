// The process that runs on each host of a cluster: it starts ranks and forwards their channels.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "fabric/system/file.h"
#include "harness/cluster/agents/link.h"
#include "harness/cluster/agents/token.h"

namespace plugfest::cluster {

/// Serves the controller until the controller ends the run, or the connection breaks. `name`: the host's name, unique
/// in the run. `version`: the version of plugfest. Processes of ranks end with the calling thread. `stop_fd`: the run
/// also ends when it becomes readable; -1: never. Errors: std::runtime_error if no controller listens at the address,
/// or it does not know the token.
void run_agent(const Meeting& meeting, const std::string& name, const std::string& version, int stop_fd = -1);

/// Returns JSON: `kernel`, `system`, `cpu`, `user`; `plugin` {path, sha256}; `tool` {sha256}; `devices`
/// [{name, driver, firmware, model, state, link_layer, rate, mtu, gid, pfc}], of RDMA devices; `findings` [{name,
/// state, text, fix}], of the doctor's mode `system`. Takes well below a second.
std::string facts(const std::string& plugin);

// The orders of an agent: pairs that it measures, and pairs that another agent measures with it.

/// Executes each order in a thread. An agent that measures a pair is a small controller. It starts the rank of its own
/// NIC itself. The agent of the other host joins it for this pair and starts the rank of the other NIC. Thread safety:
/// none.
class PairOrders {
 public:
  /// `token`: the controller's. `name` and `version`: see run_agent(). `send`: sends a message to the controller.
  PairOrders(const Token& token, std::string name, std::string version, std::function<void(const Message&)> send);
  /// Interrupts all orders, and waits for their threads.
  ~PairOrders();
  PairOrders(const PairOrders&) = delete;
  PairOrders& operator=(const PairOrders&) = delete;

  /// Becomes readable when `report` has answers.
  int wake_fd() const { return wake_.get(); }
  /// Processes kMeasure: measures a pair, for which the other agent connects to `address`.
  void measure(const Message& message, const std::string& address);
  /// Processes kAssist: connects to the agent that measures a pair, in addition to the controller.
  void assist(const Message& message);
  /// Sends the answers of orders that have ended.
  void report();

 private:
  /// Runs `work` in a thread. Its answer, or its error, goes to the controller.
  void carry_out(std::uint32_t order, std::function<std::optional<Message>()> work);

  const Token token_;
  const std::string name_;
  const std::string version_;
  const std::function<void(const Message&)> send_;
  const Descriptor wake_;
  const Descriptor stopping_;
  std::mutex mutex_;
  /// Guarded by the mutex.
  std::vector<Message> answers_;
  /// Declared last: its threads use the other members, and its destructor waits for them.
  std::vector<std::future<void>> running_;
};

}  // namespace plugfest::cluster
