// verbs-exchange, a program for tests: two processes, with any libibverbs and device, exchange data with operations
// that perftest and ibverbs-utils do not use, and check every byte: immediate data, atomics, READs, memory windows,
// SEND with invalidate.
//
//   verbs-exchange rc|uc|ud -d DEVICE -g GID_INDEX            server: waits for the client
//   verbs-exchange rc|uc|ud -d DEVICE -g GID_INDEX ADDRESS    client: connects to the server
//
// First the client sends requests and the server checks them, then the reverse. Exit code: 0 if all checks pass, else 1
// with the failed check on standard error.
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "fabric/rxe/verbs_connection.h"

namespace {

using plugfest::rxe::ConnectionOptions;
using plugfest::rxe::ControlChannel;
using plugfest::rxe::require;
using plugfest::rxe::VerbsConnection;

constexpr std::size_t kGrhBytes = 40;

// Layout of each side's memory: a counter for atomics, then source data, then the target of transfers.
constexpr std::size_t kCounter = 0;
constexpr std::size_t kSource = sizeof(std::uint64_t);
constexpr std::size_t kTarget = 1 << 17;

constexpr unsigned kAtomics = 40;
constexpr std::uint32_t kWindowBytes = 5003;

struct Message {
  ibv_wr_opcode opcode;
  std::uint32_t length;
  std::uint32_t immediate;
  std::string name() const {
    return (opcode == IBV_WR_SEND_WITH_IMM ? "SEND of " : "WRITE of ") + std::to_string(length) + " bytes";
  }
};

std::vector<Message> messages(ibv_qp_type type) {
  std::vector<Message> list;
  std::uint32_t immediate = 0x01020304;
  for (const std::uint32_t length : {0u, 1u, 1000u}) list.push_back({IBV_WR_SEND_WITH_IMM, length, ++immediate});
  if (type == IBV_QPT_UD) return list;
  for (const std::uint32_t length : {1025u, 5003u}) list.push_back({IBV_WR_SEND_WITH_IMM, length, ++immediate});
  for (const std::uint32_t length : {0u, 1u, 1024u, 100'001u})
    list.push_back({IBV_WR_RDMA_WRITE_WITH_IMM, length, ++immediate});
  return list;
}

std::uint8_t byte_at(std::uint32_t seed, std::size_t i) {
  return static_cast<std::uint8_t>((i * 2654435761u + seed) >> 7);
}

/// The requests of one side and the checks of the other.
class Exchange {
 public:
  explicit Exchange(VerbsConnection& connection)
      : connection_(connection), channel_(connection.channel()), memory_(connection.memory()) {}

  void send_requests() {
    for (const Message& message : messages(connection_.type())) {
      fill_source(message.length);
      channel_.synchronize();  // the peer has posted a receive request
      send(message);
      channel_.synchronize();  // the peer has checked the message
    }
    if (connection_.type() != IBV_QPT_RC) return;
    channel_.synchronize();
    add_to_remote_counter();
    read_remote_source();
    channel_.synchronize();
    use_remote_window();
  }

  void check_requests() {
    for (const Message& message : messages(connection_.type())) {
      std::memset(memory_.data(), 0, memory_.size());
      post_receive();
      channel_.synchronize();
      check(message);
      channel_.synchronize();
    }
    if (connection_.type() != IBV_QPT_RC) return;
    std::memset(memory_.data(), 0, memory_.size());
    fill_source(0);
    channel_.synchronize();
    channel_.synchronize();  // the peer uses atomics and READs, while this process does not poll
    std::uint64_t count = 0;
    std::memcpy(&count, memory_.data() + kCounter, sizeof(count));
    require(count == kAtomics, "atomics: the counter is " + std::to_string(count));
    offer_window();
  }

 private:
  void fill_source(std::uint32_t seed) {
    for (std::size_t i = kSource; i < kTarget; ++i) memory_[i] = byte_at(seed, i);
  }

  void check_target(const std::string& name, std::uint32_t seed, std::size_t offset, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i)
      require(memory_[kTarget + offset + i] == byte_at(seed, i + kSource), name + ": byte " + std::to_string(i));
  }

  void post_receive() { connection_.post_receive(kTarget, kTarget); }

  void send(const Message& message) {
    ibv_send_wr request = {};
    request.opcode = message.opcode;
    request.imm_data = htonl(message.immediate);
    if (connection_.type() == IBV_QPT_UD)
      connection_.set_datagram_destination(request);
    else
      request.wr.rdma = {connection_.remote_address(kTarget), connection_.remote_key()};
    connection_.post(request, kSource, message.length);
    connection_.wait_for_completion(message.name());
  }

  void check(const Message& message) {
    const std::string name = message.name();
    const ibv_wc completion = connection_.wait_for_completion(name);
    const std::size_t head = connection_.type() == IBV_QPT_UD ? kGrhBytes : 0;
    const bool is_send = message.opcode == IBV_WR_SEND_WITH_IMM;
    require(completion.opcode == (is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM), name + ": opcode");
    require((completion.wc_flags & IBV_WC_WITH_IMM) != 0, name + ": no immediate data");
    require(ntohl(completion.imm_data) == message.immediate,
            name + ": immediate data " + std::to_string(ntohl(completion.imm_data)));
    require(completion.byte_len == message.length + head, name + ": length " + std::to_string(completion.byte_len));
    check_target(name, message.length, head, message.length);
    require(memory_[kTarget + head + message.length] == 0, name + ": the byte after the message was written");
  }

  // Each addition must return the result of the one before: none is lost, none is executed twice.
  void add_to_remote_counter() {
    ibv_send_wr request = {};
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.wr.atomic = {connection_.remote_address(kCounter), 1, 0, connection_.remote_key()};
    for (std::size_t i = 0; i < kAtomics; ++i)
      connection_.post(request, kTarget + i * sizeof(std::uint64_t), sizeof(std::uint64_t));
    for (std::size_t i = 0; i < kAtomics; ++i) connection_.wait_for_completion("atomic");
    for (std::size_t i = 0; i < kAtomics; ++i) {
      std::uint64_t before = 0;
      std::memcpy(&before, memory_.data() + kTarget + i * sizeof(before), sizeof(before));
      require(before == i, "atomic " + std::to_string(i) + " returned " + std::to_string(before));
    }
  }

  void read_remote_source() {
    constexpr std::uint32_t kLength = 100'001;
    ibv_send_wr request = {};
    request.opcode = IBV_WR_RDMA_READ;
    request.wr.rdma = {connection_.remote_address(kSource), connection_.remote_key()};
    connection_.post(request, kTarget, kLength);
    connection_.wait_for_completion("READ");
    check_target("READ", 0, 0, kLength);
  }

  // Writes through the peer's memory window, and invalidates the window with a SEND.
  void use_remote_window() {
    fill_source(kWindowBytes);
    ibv_send_wr request = {};
    request.opcode = IBV_WR_RDMA_WRITE;
    const auto key = channel_.receive_value<std::uint32_t>();
    request.wr.rdma = {connection_.remote_address(kTarget), key};
    connection_.post(request, kSource, kWindowBytes);
    connection_.wait_for_completion("WRITE through a memory window");
    channel_.synchronize();
    channel_.synchronize();  // the peer has posted a receive request
    request = {};
    request.opcode = IBV_WR_SEND_WITH_INV;
    request.invalidate_rkey = key;
    connection_.post(request, 0, kWindowBytes);
    connection_.wait_for_completion("SEND with invalidate");
    channel_.synchronize();
  }

  void offer_window() {
    std::memset(memory_.data() + kTarget, 0, memory_.size() - kTarget);
    ibv_mw* const window = ibv_alloc_mw(connection_.domain(), IBV_MW_TYPE_2);
    require(window != nullptr, "cannot allocate a memory window");
    bind(window);
    channel_.send_value(window->rkey);
    channel_.synchronize();
    check_target("WRITE through a memory window", kWindowBytes, 0, kWindowBytes);
    post_receive();
    channel_.synchronize();
    const ibv_wc completion = connection_.wait_for_completion("SEND with invalidate");
    require(completion.opcode == IBV_WC_RECV && completion.byte_len == kWindowBytes, "SEND with invalidate: length");
    // rxe of Linux 6.1 does not report the invalidated key. The bind below shows that the window was invalidated.
    if ((completion.wc_flags & IBV_WC_WITH_INV) != 0)
      require(completion.invalidated_rkey == window->rkey, "SEND with invalidate: wrong key");
    bind(window);  // fails if the window is still bound
    channel_.synchronize();
    require(ibv_dealloc_mw(window) == 0, "cannot deallocate the memory window");
  }

  void bind(ibv_mw* window) {
    ibv_send_wr request = {};
    request.opcode = IBV_WR_BIND_MW;
    request.bind_mw.mw = window;
    request.bind_mw.rkey = ibv_inc_rkey(window->rkey);
    request.bind_mw.bind_info = {connection_.region(), reinterpret_cast<std::uint64_t>(memory_.data() + kTarget),
                                 kWindowBytes, IBV_ACCESS_REMOTE_WRITE};
    connection_.post(request);
    require(connection_.wait_for_completion("bind").opcode == IBV_WC_BIND_MW, "bind: opcode");
    window->rkey = request.bind_mw.rkey;
  }

  VerbsConnection& connection_;
  ControlChannel& channel_;
  std::vector<std::uint8_t>& memory_;
};

ConnectionOptions options_of(int argc, char** argv) {
  ConnectionOptions options;
  const std::string type = argc >= 2 ? argv[1] : "";
  require(type == "rc" || type == "uc" || type == "ud", "expected rc, uc or ud");
  options.type = type == "rc" ? IBV_QPT_RC : type == "uc" ? IBV_QPT_UC : IBV_QPT_UD;
  for (int option; (option = getopt(argc - 1, argv + 1, "d:g:")) != -1;) {
    if (option == 'd') options.device = optarg;
    if (option == 'g') options.gid_index = std::atoi(optarg);
  }
  if (optind + 1 < argc) options.address = argv[optind + 1];
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const ConnectionOptions options = options_of(argc, argv);
    VerbsConnection connection(options);
    Exchange exchange(connection);
    const bool is_client = options.address != nullptr;
    is_client ? exchange.send_requests() : exchange.check_requests();
    is_client ? exchange.check_requests() : exchange.send_requests();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbs-exchange: %s\n", error.what());
    return 1;
  }
  return 0;
}
