#include "conformance/net/script/process_state.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "conformance/rules/rule_body.h"
#include "fabric/system/file.h"
#include "fabric/system/text.h"

namespace plugfest::conformance {
namespace {

// The value of "key:" in a file of /proc, in the given base; 0 without such a line.
std::uint64_t number_in(const std::string& file, const std::string& key, int base) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1), nullptr, base);
  return 0;
}

// The lowest number that a new descriptor of the process would get.
std::uint64_t lowest_free_descriptor(pid_t process) {
  std::uint64_t number = 0;
  while (std::filesystem::is_symlink(fmt::format("/proc/{}/fd/{}", process, number))) ++number;
  return number;
}

std::uint64_t set_descriptor_limit(pid_t process, std::uint64_t limit) {
  rlimit now{};
  if (prlimit(process, RLIMIT_NOFILE, nullptr, &now) == 0) {
    const rlimit wanted{std::min<rlim_t>(limit, now.rlim_max), now.rlim_max};
    if (prlimit(process, RLIMIT_NOFILE, &wanted, nullptr) == 0) return now.rlim_cur;
  }
  throw Skipped(
      fmt::format("the limit of descriptors of process {} cannot be changed: {}", process, std::strerror(errno)));
}

}  // namespace

FlagProtocols flag_protocols(control::Rank rank) {
  constexpr std::string_view kVariable = "NCCL_PROTO=";
  FlagProtocols allowed;
  for (const std::string& variable : rank.process().environment) {
    if (!variable.starts_with(kVariable)) continue;
    // "LIST;COLLECTIVE:LIST;…" in any letter case. A list names protocols, or after '^' those that are excluded
    // (graph/tuning.cc: parseList).
    std::string value = variable.substr(kVariable.size());
    std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
    std::istringstream entries(value);
    for (std::string entry; std::getline(entries, entry, ';');) {
      const std::size_t colon = entry.find(':');
      const bool for_all = colon == std::string::npos;
      std::string list = for_all ? entry : entry.substr(colon + 1);
      const bool excluded = list.starts_with('^');
      std::istringstream names(list.substr(excluded ? 1 : 0));
      std::set<std::string> named;
      for (std::string name; std::getline(names, name, ',');) named.insert(name);
      const FlagProtocols listed = {named.contains("ll") != excluded, named.contains("ll128") != excluded};
      if (for_all) allowed = {false, false};
      allowed = {allowed.ll || listed.ll, allowed.ll128 || listed.ll128};
    }
    if (!allowed.ll && !allowed.ll128)
      throw NotApplicable(variable + ": NCCL uses neither LL nor LL128 with this plugin");
  }
  return allowed;
}

std::uint64_t context_of_init(control::Rank& rank, const control::InitOptions& options) {
  const control::PointerOutcome init = rank.try_init(options);
  if (!init.ok()) throw NotApplicable(fmt::format("init returned {}", control::result_name(init.code)));
  return init.value;
}

std::vector<std::string> inherited_descriptors(pid_t process) {
  constexpr std::uint64_t kCloseOnExec = 02000000;
  std::vector<std::string> inherited;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process), ignored)) {
    const std::string number = entry.path().filename().string();
    const std::uint64_t flags = number_in(fmt::format("/proc/{}/fdinfo/{}", process, number), "flags", 8);
    if (std::stoi(number) <= 2 || (flags & kCloseOnExec) != 0) continue;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.empty()) continue;  // it was closed since, possibly before its flags were read
    inherited.push_back(fmt::format("{} ({})", number, target));
  }
  return inherited;
}

std::uint64_t caught_signals(pid_t process) { return number_in(fmt::format("/proc/{}/status", process), "SigCgt", 16); }

std::vector<ThreadFacts> threads_of(pid_t process) {
  std::vector<ThreadFacts> threads;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), ignored)) {
    // "17 (name) S 1 …": the user and system time are the 12th and 13th word after the name.
    std::string stat;
    if (!std::getline(std::ifstream(entry.path() / "stat"), stat)) continue;  // it has ended
    const std::size_t name = stat.find('(') + 1, name_end = stat.rfind(") ");
    std::istringstream words(stat.substr(name_end + 2));
    std::vector<std::string> fields;
    for (std::string word; fields.size() < 13 && words >> word;) fields.push_back(word);
    threads.push_back({.id = std::stoi(entry.path().filename().string()),
                       .name = stat.substr(name, name_end - name),
                       .blocked = number_in(entry.path() / "status", "SigBlk", 16),
                       .runs = fields.at(0) == "R",
                       .cpu_seconds = static_cast<double>(std::stoull(fields.at(11)) + std::stoull(fields.at(12))) /
                                      static_cast<double>(sysconf(_SC_CLK_TCK))});
  }
  return threads;
}

void in_network_of(pid_t process, const std::function<void()>& action) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      const std::string path = fmt::format("/proc/{}/ns/net", process);
      std::error_code unknown;
      // Joining the caller's current namespace would also require CAP_SYS_ADMIN.
      if (!std::filesystem::equivalent(path, "/proc/thread-self/ns/net", unknown)) {
        const Descriptor network(open(path.c_str(), O_RDONLY | O_CLOEXEC));
        if (!network || setns(network.get(), CLONE_NEWNET) != 0)
          throw_errno(fmt::format("enter the network namespace of process {}", process));
      }
      action();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

bool tcp_sends(pid_t process, bool or_waits) {
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream connections(fmt::format("/proc/{}/net/{}", process, table));
    for (std::string line; std::getline(connections, line);) {
      // "0: local remote state queues timer:expires …": timer 01 is for retransmissions, 04 for probes of a full peer.
      std::istringstream words(line);
      std::string word;
      for (int i = 0; i < 6; ++i) words >> word;
      if (word.starts_with("01:") || (or_waits && word.starts_with("04:"))) return true;
    }
  }
  return false;
}

namespace {

// Passes the first 64 bytes of packets with a traffic class other than 0: byte 1 of an IPv4 header, bits 4 to 11 of an
// IPv6 header. The two bits of ECN do not count.
constexpr sock_filter kWithTrafficClass[] = {BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0),
                                             BPF_STMT(BPF_MISC | BPF_TAX, 0),
                                             BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 12),
                                             BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 6, 2, 0),
                                             BPF_STMT(BPF_MISC | BPF_TXA, 0),
                                             BPF_JUMP(BPF_JMP | BPF_JA, 2, 0, 0),
                                             BPF_STMT(BPF_MISC | BPF_TXA, 0),
                                             BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4),
                                             BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xfc),
                                             BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
                                             BPF_STMT(BPF_RET | BPF_K, 64),
                                             BPF_STMT(BPF_RET | BPF_K, 0)};

}  // namespace

PacketWatch::PacketWatch(pid_t process) {
  in_network_of(process, [this] {
    for (Descriptor* const watch : {&all_, &classified_}) {
      *watch = Descriptor(socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!*watch) throw Skipped(fmt::format("packets of the host cannot be seen: {}", std::strerror(errno)));
    }
  });
  std::vector<sock_filter> filter(std::begin(kWithTrafficClass), std::end(kWithTrafficClass));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  if (setsockopt(classified_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0)
    throw_errno("attach a packet filter");
  // The sockets get packets from here on. Packets from before the filter would fill the buffer, so that the others are
  // lost.
  sockaddr_ll any{};
  any.sll_family = AF_PACKET;
  any.sll_protocol = htons(ETH_P_ALL);
  for (const Descriptor* const watch : {&all_, &classified_})
    if (bind(watch->get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) throw_errno("watch packets");
}

std::set<int> PacketWatch::roce_classes() {
  std::set<int> classes;
  for (const Descriptor* const watch : {&all_, &classified_}) classes.merge(classes_in(watch->get()));
  return classes;
}

std::set<int> PacketWatch::classes_in(int watch) {
  constexpr std::uint16_t kRocePort = 4791;
  std::set<int> classes;
  std::array<std::uint8_t, 64> packet{};  // the headers of IP and UDP
  sockaddr_ll address{};
  for (;;) {
    socklen_t size = sizeof address;
    const ssize_t got = recvfrom(watch, packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&address), &size);
    if (got < 0) return classes;
    const bool ipv6 = packet[0] >> 4 == 6;
    const std::size_t udp = ipv6 ? 40 : (packet[0] & 15u) * 4;
    if (address.sll_pkttype != PACKET_OUTGOING || static_cast<std::size_t>(got) < udp + 4) continue;
    if (packet[ipv6 ? 6 : 9] != IPPROTO_UDP || (packet[udp + 2] << 8 | packet[udp + 3]) != kRocePort) continue;
    classes.insert(ipv6 ? (packet[0] & 15) << 4 | packet[1] >> 4 : packet[1]);
  }
}

namespace {
// Minimum, default and maximum size of the buffers of a socket.
constexpr const char* kSocketBuffers[] = {"/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"};
}  // namespace

SmallSocketBuffers::SmallSocketBuffers(pid_t process) : process_(process) {
  in_network_of(process_, [this] {
    for (const char* file : kSocketBuffers) std::getline(std::ifstream(file), before_.emplace_back());
  });
  set({"3072 3072 3072", "4096 16384 16384"});
}

SmallSocketBuffers::~SmallSocketBuffers() {
  try {
    set(before_);
  } catch (const std::exception&) {
    // The process has ended, and its namespace may have ended too.
  }
}

void SmallSocketBuffers::set(const std::vector<std::string>& limits) {
  in_network_of(process_, [&] {
    for (std::size_t i = 0; i < limits.size(); ++i) {
      std::ofstream file(kSocketBuffers[i]);
      if (!(file << limits[i] << std::flush)) throw_file_error(kSocketBuffers[i], "write");
    }
  });
}

NoMoreDescriptors::NoMoreDescriptors(control::Rank rank)
    : process_(rank.pid()), before_(set_descriptor_limit(process_, lowest_free_descriptor(process_))) {}

NoMoreDescriptors::~NoMoreDescriptors() {
  try {
    set_descriptor_limit(process_, before_);
  } catch (const std::exception&) {
    // The process has ended.
  }
}

}  // namespace plugfest::conformance
