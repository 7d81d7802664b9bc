// plugfest-nccl: one rank. Reads commands, one a line, from kControlFd and answers each with a line.
//
//   load DEVICE                                  ok VERSION
//   id                                           ok HEX, an ncclUniqueId
//   init COMM RANKS RANK HEX                     ok
//   try COMM RANKS RANK HEX                      ok; as init, and "abort" ends it
//   fail FUNCTION CALLS                          ok; makes a call of the plugin of EE-07 return an error
//   split COMM COLOR KEY NEW                     ok RANKS
//   run COMM OPERATION BYTES TYPE REDOP ROOT WARMUPS ITERATIONS SEED PIECES
//                                                ok COUNT US WRONG [US WRONG]
//   send COMM TO BYTES SEED                      ok
//   receive COMM FROM BYTES SEED                 ok WRONG
//   churn COMM BYTES ROUNDS SEED                 ok running, after three rounds; at the end ok WRONG
//   destroy COMM                                 ok
//   abort COMM…                                  ok; several: in one group
//
// A failure answers "error CODE TEXT". An "abort" ends the operation that is in progress, which then answers an error.
// COMM is a name. Numbers of operations, types and operators: operations.h.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "harness/traffic/nccl/commands.h"
#include "harness/traffic/nccl/cuda/runtime.h"
#include "harness/traffic/nccl/load.h"
#include "harness/traffic/nccl/operations.h"

namespace plugfest::nccl {
namespace {

std::string to_hex(const UniqueId& id) {
  std::string text;
  for (const char byte : id.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

UniqueId from_hex(const std::string& text) {
  UniqueId id{};
  for (std::size_t i = 0; i < id.bytes.size() && 2 * i + 1 < text.size(); ++i)
    id.bytes[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

bool reply(std::string text) {
  for (char& character : text)
    if (character == '\n') character = kLineBreak;
  text += '\n';
  return ::write(kControlFd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

class Rank {
 public:
  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string command, name;
    words >> command;
    if (command == "load") {
      api_ = &open_nccl();
      int device = 0;
      words >> device;
      ::cudaSetDevice(device);
      int version = 0;
      check(api_->GetVersion(&version), "ncclGetVersion");
      return fmt::format("ok {}", version);
    }
    if (command == "id") {
      UniqueId id{};
      check(api_->GetUniqueId(&id), "ncclGetUniqueId");
      return "ok " + to_hex(id);
    }
    if (command == "fail") {
      std::string function;
      int calls = 0;
      words >> function >> calls;
      return fail_call(function, calls);
    }
    words >> name;
    Member& member = comms_[name];
    if (command == "init") {
      std::string id;
      words >> member.ranks >> member.rank >> id;
      check(api_->CommInitRank(&member.comm, member.ranks, from_hex(id), member.rank), "ncclCommInitRank");
      return "ok";
    }
    if (command == "try") {
      std::string id;
      words >> member.ranks >> member.rank >> id;
      NonBlockingConfig config;
      const int code = api_->CommInitRankConfig(&member.comm, member.ranks, from_hex(id), member.rank, &config);
      if (code != kInProgress) check(code, "ncclCommInitRankConfig");
      wait_until_ready(*api_, member.comm);
      return "ok";
    }
    if (command == "run") {
      Measurement wanted;
      int operation = 0, type = 0, redop = 0;
      words >> operation >> wanted.bytes >> type >> redop >> wanted.root >> wanted.warmups >> wanted.iterations >>
          wanted.seed >> wanted.pieces;
      wanted.operation = static_cast<Operation>(operation);
      wanted.type = static_cast<device::Type>(type);
      wanted.redop = static_cast<RedOp>(redop);
      const Outcome outcome = measure(*api_, member.comm, member.rank, member.ranks, wanted);
      std::string text =
          fmt::format("ok {} {:.2f} {}", outcome.count, outcome.out_of_place.microseconds, outcome.out_of_place.wrong);
      if (outcome.in_place) text += fmt::format(" {:.2f} {}", outcome.in_place->microseconds, outcome.in_place->wrong);
      if (!outcome.first_wrong.empty()) text += " " + outcome.first_wrong;
      return text;
    }
    if (command == "send" || command == "receive") {
      int peer = 0;
      std::size_t bytes = 0;
      std::uint64_t seed = 0;
      words >> peer >> bytes >> seed;
      if (command == "receive") {
        const Differences differences = receive_bytes(*api_, member.comm, peer, bytes, seed);
        return fmt::format("ok {}{}", differences.count, differences.count == 0 ? "" : ": " + differences.first);
      }
      send_bytes(*api_, member.comm, member.rank, peer, bytes, seed);
      return "ok";
    }
    if (command == "churn") {
      std::size_t bytes = 0;
      int rounds = 0;
      std::uint64_t seed = 0;
      words >> bytes >> rounds >> seed;
      const std::size_t wrong = churn(*api_, member.comm, member.rank, member.ranks, bytes, rounds, seed,
                                      [] { reply(fmt::format("ok {}", kRunning)); });
      return fmt::format("ok {}", wrong);
    }
    if (command == "split") {
      int color = 0, key = 0;
      std::string other;
      words >> color >> key >> other;
      Member part;
      check(api_->CommSplit(member.comm, color, key, &part.comm, nullptr), "ncclCommSplit");
      check(api_->CommCount(part.comm, &part.ranks), "ncclCommCount");
      check(api_->CommUserRank(part.comm, &part.rank), "ncclCommUserRank");
      comms_[other] = part;
      return fmt::format("ok {}", part.ranks);
    }
    if (command == "destroy") {
      const Member closing = member;
      comms_.erase(name);
      check(api_->CommDestroy(closing.comm), "ncclCommDestroy");
      return "ok";
    }
    if (command == "abort") {
      std::vector<Comm> closing;
      do {
        closing.push_back(comms_[name].comm);
        comms_.erase(name);
      } while (words >> name);
      // A group tells the kernels of all to end before it frees memory: cudaFree and cudaFreeHost wait for the kernels
      // of every communicator.
      if (closing.size() > 1) check(api_->GroupStart(), "ncclGroupStart");
      for (const Comm comm : closing) check(api_->CommAbort(comm), "ncclCommAbort");
      if (closing.size() > 1) check(api_->GroupEnd(), "ncclGroupEnd");
      return "ok";
    }
    return fmt::format("error 4 unknown command {}", command);
  }

 private:
  struct Member {
    Comm comm = nullptr;
    int ranks = 0, rank = 0;
  };

  static std::string fail_call(const std::string& function, int calls) {
    const char* const path = std::getenv("NCCL_NET_PLUGIN");
    void* const plugin = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (plugin == nullptr) return fmt::format("error {} NCCL has not loaded the plugin", kCannotLoad);
    const auto fail = reinterpret_cast<void (*)(const char*, int)>(::dlsym(plugin, "plugfest_fail_call"));
    if (fail != nullptr) fail(function.c_str(), calls);
    ::dlclose(plugin);
    return fail != nullptr ? "ok" : fmt::format("error {} {}: has no plugfest_fail_call", kCannotLoad, path);
  }

  void check(int code, const char* function) const {
    if (code == kOk) return;
    throw NcclError{code, fmt::format("{}: {}", function, api_->GetErrorString(code))};
  }

  const Api* api_ = nullptr;
  std::map<std::string, Member> comms_;
};

int serve() {
  if (::fcntl(kControlFd, F_SETFD, FD_CLOEXEC) != 0) {
    std::fputs("plugfest-nccl: this program is started by plugfest; run plugfest nccl --help\n", stderr);
    return 2;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::FILE* const control = ::fdopen(kControlFd, "r+");
  std::setvbuf(control, nullptr, _IONBF, 0);  // finish() looks for the next command in the socket
  Rank rank;
  std::string line;
  for (int c = 0; (c = std::fgetc(control)) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    std::string text;
    try {
      text = rank.answer(line);
    } catch (const NcclError& error) {
      text = fmt::format("error {} {}", error.code, error.text);
    } catch (const std::exception& error) {
      text = fmt::format("error {} {}", kCannotLoad, error.what());
    }
    if (!reply(std::move(text))) break;
    line.clear();
  }
  // Destructors of NCCL and of the plugin may hang after an error.
  std::fflush(nullptr);
  ::_exit(0);
}

}  // namespace
}  // namespace plugfest::nccl

int main() { return plugfest::nccl::serve(); }
