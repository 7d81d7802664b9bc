// plugfest-nccl: one rank. Takes commands from kControlFd and answers each.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "harness/nccl/cuda/runtime.h"
#include "harness/nccl/load.h"
#include "harness/nccl/operations.h"
#include "harness/nccl/put_all_to_all.h"

namespace plugfest::nccl {
namespace {

class CommandTable {
 public:
  explicit CommandTable(Controller& controller) : controller_(controller) {}

  Answer answer(const Load& command) {
    api_ = &open_nccl();
    ::cudaSetDevice(command.device);
    int version = 0;
    check(api_->GetVersion(&version), "ncclGetVersion");
    return {};
  }

  Answer answer(const MakeId&) {
    UniqueId id{};
    check(api_->GetUniqueId(&id), "ncclGetUniqueId");
    const auto* const bytes = reinterpret_cast<const std::byte*>(id.bytes.data());
    return {.id = {bytes, bytes + id.bytes.size()}};
  }

  Answer answer(const Init& command) {
    Member& member = comms_[command.comm] = {api_, &controller_, nullptr, command.ranks, command.rank};
    UniqueId id{};
    std::memcpy(id.bytes.data(), command.id.data(), std::min(id.bytes.size(), command.id.size()));
    if (!command.can_be_aborted) {
      check(api_->CommInitRank(&member.comm, member.ranks, id, member.rank), "ncclCommInitRank");
      return {};
    }
    NonBlockingConfig config;
    const int code = api_->CommInitRankConfig(&member.comm, member.ranks, id, member.rank, &config);
    if (code != kInProgress) check(code, "ncclCommInitRankConfig");
    wait_until_ready(member);
    return {};
  }

  Answer answer(const FailCall& command) {
    const char* const path = std::getenv("NCCL_NET_PLUGIN");
    void* const plugin = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (plugin == nullptr) throw NcclError{kCannotLoad, "NCCL has not loaded the plugin"};
    const auto fail = reinterpret_cast<void (*)(const char*, int)>(::dlsym(plugin, "plugfest_fail_call"));
    if (fail != nullptr) fail(command.function.c_str(), command.calls);
    ::dlclose(plugin);
    if (fail == nullptr) throw NcclError{kCannotLoad, fmt::format("{}: has no plugfest_fail_call", path)};
    return {};
  }

  Answer answer(const Split& command) {
    Member part = comms_[command.comm];
    check(api_->CommSplit(part.comm, command.color, command.key, &part.comm, nullptr), "ncclCommSplit");
    check(api_->CommCount(part.comm, &part.ranks), "ncclCommCount");
    check(api_->CommUserRank(part.comm, &part.rank), "ncclCommUserRank");
    comms_[command.part] = part;
    return {.ranks = part.ranks};
  }

  Answer answer(const Run& command) { return {.outcome = measure(comms_[command.comm], command.measurement)}; }

  Answer answer(const Send& command) {
    send_bytes(comms_[command.comm], command);
    return {};
  }

  Answer answer(const Receive& command) {
    const Differences differences = receive_bytes(comms_[command.comm], command);
    return {.text = differences.first, .wrong = differences.count};
  }

  Answer answer(const Churn& command) {
    return {.wrong = churn(comms_[command.comm], command, [this] { controller_.answer({.is_running = true}); })};
  }

  Answer answer(const PutAllToAll& command) {
    const Differences differences =
        put_all_to_all(comms_[command.comm], command, [this] { controller_.answer({.is_running = true}); });
    return {.text = differences.first, .wrong = differences.count};
  }

  Answer answer(const Destroy& command) {
    const Member closing = comms_[command.comm];
    comms_.erase(command.comm);
    check(api_->CommDestroy(closing.comm), "ncclCommDestroy");
    return {};
  }

  Answer answer(const Abort& command) {
    std::vector<Comm> closing;
    for (const std::string& name : command.comms) {
      closing.push_back(comms_[name].comm);
      comms_.erase(name);
    }
    // A group ends the kernels of all communicators before it frees memory: cudaFree and cudaFreeHost wait for all
    // kernels.
    if (closing.size() > 1) check(api_->GroupStart(), "ncclGroupStart");
    for (const Comm comm : closing) check(api_->CommAbort(comm), "ncclCommAbort");
    if (closing.size() > 1) check(api_->GroupEnd(), "ncclGroupEnd");
    return {};
  }

 private:
  void check(int code, const char* function) const {
    if (code == kOk) return;
    throw NcclError{code, fmt::format("{}: {}", function, api_->GetErrorString(code))};
  }

  Controller& controller_;
  const Api* api_ = nullptr;
  std::map<std::string, Member> comms_;
};

int serve() {
  if (::fcntl(kControlFd, F_SETFD, FD_CLOEXEC) != 0) {
    std::fputs("plugfest-nccl: this program is started by plugfest; run plugfest nccl --help\n", stderr);
    return 2;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Controller controller;
  CommandTable table(controller);
  while (const std::optional<Command> command = controller.next()) {
    Answer answer;
    try {
      answer = std::visit([&](const auto& one) { return table.answer(one); }, *command);
    } catch (const NcclError& error) {
      answer = {.ok = false, .code = error.code, .text = error.text};
    } catch (const std::exception& error) {
      answer = {.ok = false, .code = kCannotLoad, .text = error.what()};
    }
    if (!controller.answer(answer)) break;
  }
  // Destructors of NCCL and of the plugin may hang after an error.
  std::fflush(nullptr);
  ::_exit(0);
}

}  // namespace
}  // namespace plugfest::nccl

int main() { return plugfest::nccl::serve(); }
