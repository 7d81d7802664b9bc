// For tests: two of these, over any libibverbs and any device, send each other what perftest and ibverbs-utils do not,
// and check every byte and number that comes: immediate data, atomics, READs, memory windows and SENDs that take them.
//
//   verbs-talk rc|uc|ud -d DEVICE -g GID_INDEX            waits for the other one
//   verbs-talk rc|uc|ud -d DEVICE -g GID_INDEX ADDRESS    talks to the one there
//
// First the client asks and the server answers, then the other way round. Exit code: 0 all is as it must be, 1 it is
// not, and what is not is said.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint16_t kExchangePort = 18515;
constexpr std::size_t kBytes = 1 << 18;
constexpr std::size_t kGrhBytes = 40;
constexpr std::size_t kWord = 0;  // of atomics
constexpr std::size_t kTarget = 1 << 17;
constexpr std::uint32_t kQKey = 0x1ee7;
constexpr std::uint32_t kPsn = 0xfffff0;  // soon past the wrap
constexpr unsigned kAtomics = 40;
constexpr std::uint32_t kWindowBytes = 5003;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// A TCP connection on which both say what the other has to know, and wait for each other.
class Line {
 public:
  explicit Line(const char* address) {
    const int made = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(kExchangePort);
    if (address != nullptr) {
      require(inet_pton(AF_INET, address, &name.sin_addr) == 1, "not an address");
      require(connect(made, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0, "nobody listens there");
      socket_ = made;
      return;
    }
    const int on = 1;
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    require(bind(made, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0 && listen(made, 1) == 0, "cannot listen");
    socket_ = accept(made, nullptr, nullptr);
    close(made);
  }
  ~Line() { close(socket_); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  template <typename Value>
  void say(const Value& value) {
    require(write(socket_, &value, sizeof(value)) == sizeof(value), "the other side has gone");
  }
  template <typename Value>
  Value hear() {
    Value value;
    require(recv(socket_, &value, sizeof(value), MSG_WAITALL) == sizeof(value), "the other side has gone");
    return value;
  }
  void meet() {
    say('.');
    hear<char>();
  }

 private:
  int socket_ = -1;
};

struct Card {
  ibv_gid gid;
  std::uint32_t number;
  std::uint32_t key;
  std::uint64_t address;
};

struct Options {
  ibv_qp_type type = IBV_QPT_RC;
  std::string device;
  int gid_index = 0;
  const char* address = nullptr;
};

class Talk {
 public:
  explicit Talk(const Options& options) : type_(options.type), memory_(kBytes), line_(options.address) {
    open(options.device);
    domain_ = ibv_alloc_pd(context_);
    completions_ = ibv_create_cq(context_, 128, nullptr, nullptr, 0);
    constexpr int kAccess =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    region_ = ibv_reg_mr(domain_, memory_.data(), memory_.size(), kAccess | IBV_ACCESS_MW_BIND);
    require(region_ != nullptr && completions_ != nullptr, "no memory region or completion queue");
    ibv_qp_init_attr attributes = {};
    attributes.qp_type = type_;
    attributes.send_cq = attributes.recv_cq = completions_;
    attributes.cap = {.max_send_wr = 64, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    queue_pair_ = ibv_create_qp(domain_, &attributes);
    require(queue_pair_ != nullptr, "no queue pair");
    Card own = {{}, queue_pair_->qp_num, region_->rkey, reinterpret_cast<std::uint64_t>(memory_.data())};
    require(ibv_query_gid(context_, 1, options.gid_index, &own.gid) == 0, "no such GID");
    line_.say(own);
    peer_ = line_.hear<Card>();
    connect(options.gid_index, kAccess);
    line_.meet();
  }

  ~Talk() {
    if (handle_ != nullptr) ibv_destroy_ah(handle_);
    ibv_destroy_qp(queue_pair_);
    ibv_dereg_mr(region_);
    ibv_destroy_cq(completions_);
    ibv_dealloc_pd(domain_);
    ibv_close_device(context_);
  }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  void ask() {
    for (const Message& message : messages()) {
      fill(message.length);
      line_.meet();  // a receive is posted
      send(message);
      line_.meet();  // and what came was right
    }
    if (type_ != IBV_QPT_RC) return;
    line_.meet();
    count_up();
    read_back();
    line_.meet();
    use_window();
  }

  void answer() {
    for (const Message& message : messages()) {
      std::memset(memory_.data(), 0, memory_.size());
      post_receive();
      line_.meet();
      check(message);
      line_.meet();
    }
    if (type_ != IBV_QPT_RC) return;
    std::memset(memory_.data(), 0, memory_.size());
    fill(0);
    line_.meet();
    line_.meet();  // the other side asks, and nobody here polls
    std::uint64_t count = 0;
    std::memcpy(&count, memory_.data() + kWord, sizeof(count));
    require(count == kAtomics, "atomics: the word is " + std::to_string(count));
    lend_window();
  }

 private:
  struct Message {
    ibv_wr_opcode opcode;
    std::uint32_t length;
    std::uint32_t immediate;
    std::string name() const {
      return (opcode == IBV_WR_SEND_WITH_IMM ? "SEND of " : "WRITE of ") + std::to_string(length) + " bytes";
    }
  };

  void open(const std::string& name) {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    for (int i = 0; i < count; ++i)
      if (name == ibv_get_device_name(list[i])) context_ = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    require(context_ != nullptr, "no device " + name);
  }

  void modify(ibv_qp_attr& attributes, int mask) {
    require(ibv_modify_qp(queue_pair_, &attributes, mask) == 0, "cannot connect");
  }

  void connect(int gid_index, int access) {
    ibv_ah_attr path = {};
    path.is_global = 1;
    path.port_num = 1;
    path.grh.dgid = peer_.gid;
    path.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
    path.grh.hop_limit = 64;
    const bool reliable = type_ == IBV_QPT_RC;
    const bool datagram = type_ == IBV_QPT_UD;
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qkey = kQKey;
    attributes.qp_access_flags = static_cast<unsigned>(access);
    modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer_.number;
    attributes.rq_psn = kPsn;
    attributes.max_dest_rd_atomic = 4;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr = path;
    const int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    modify(attributes, IBV_QP_STATE | (datagram ? 0 : connected) |
                           (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = kPsn;
    attributes.timeout = 14;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 4;
    modify(attributes,
           IBV_QP_STATE | IBV_QP_SQ_PSN |
               (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
    if (!datagram) return;
    handle_ = ibv_create_ah(domain_, &path);
    require(handle_ != nullptr, "no address handle");
  }

  std::vector<Message> messages() const {
    std::vector<Message> list;
    std::uint32_t immediate = 0x01020304;
    for (const std::uint32_t length : {0u, 1u, 1000u}) list.push_back({IBV_WR_SEND_WITH_IMM, length, ++immediate});
    if (type_ == IBV_QPT_UD) return list;
    for (const std::uint32_t length : {1025u, 5003u}) list.push_back({IBV_WR_SEND_WITH_IMM, length, ++immediate});
    for (const std::uint32_t length : {0u, 1u, 1024u, 100'001u})
      list.push_back({IBV_WR_RDMA_WRITE_WITH_IMM, length, ++immediate});
    return list;
  }

  // The first half depends on `seed`; the second is where things go.
  void fill(std::uint32_t seed) {
    for (std::size_t i = sizeof(std::uint64_t); i < kTarget; ++i) memory_[i] = byte_at(seed, i);
  }
  static std::uint8_t byte_at(std::uint32_t seed, std::size_t i) {
    return static_cast<std::uint8_t>((i * 2654435761u + seed) >> 7);
  }

  void post_receive() {
    ibv_sge segment = {reinterpret_cast<std::uint64_t>(memory_.data() + kTarget), kTarget, region_->lkey};
    ibv_recv_wr request = {};
    request.sg_list = &segment;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    require(ibv_post_recv(queue_pair_, &request, &bad) == 0, "cannot post a receive");
  }

  void post(ibv_send_wr request, std::size_t offset, std::uint32_t length) {
    ibv_sge segment = {reinterpret_cast<std::uint64_t>(memory_.data() + offset), length, region_->lkey};
    request.sg_list = &segment;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    require(ibv_post_send(queue_pair_, &request, &bad) == 0, "cannot post");
  }

  ibv_wc completion(const std::string& of) {
    ibv_wc completion = {};
    int count = 0;
    while (count == 0) count = ibv_poll_cq(completions_, 1, &completion);
    require(count == 1, of + ": the completion queue failed");
    require(completion.status == IBV_WC_SUCCESS, of + ": " + ibv_wc_status_str(completion.status));
    return completion;
  }

  void send(const Message& message) {
    ibv_send_wr request = {};
    request.opcode = message.opcode;
    request.imm_data = htonl(message.immediate);
    if (type_ == IBV_QPT_UD) {
      request.wr.ud = {handle_, peer_.number, kQKey};
    } else {
      request.wr.rdma = {peer_.address + kTarget, peer_.key};
    }
    post(request, sizeof(std::uint64_t), message.length);
    completion(message.name());
  }

  void check(const Message& message) {
    const std::string name = message.name();
    const ibv_wc came = completion(name);
    const std::size_t head = type_ == IBV_QPT_UD ? kGrhBytes : 0;
    const bool is_send = message.opcode == IBV_WR_SEND_WITH_IMM;
    require(came.opcode == (is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM), name + ": opcode");
    require((came.wc_flags & IBV_WC_WITH_IMM) != 0, name + ": no immediate data");
    require(ntohl(came.imm_data) == message.immediate,
            name + ": immediate data " + std::to_string(ntohl(came.imm_data)));
    require(came.byte_len == message.length + head, name + ": length " + std::to_string(came.byte_len));
    for (std::size_t i = 0; i < message.length; ++i)
      require(memory_[kTarget + head + i] == byte_at(message.length, i + sizeof(std::uint64_t)),
              name + ": byte " + std::to_string(i));
    require(memory_[kTarget + head + message.length] == 0, name + ": the byte behind it");
  }

  // Each addition finds what the one before it left: none is lost, none carried out twice.
  void count_up() {
    ibv_send_wr request = {};
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.wr.atomic = {peer_.address + kWord, 1, 0, peer_.key};
    for (std::size_t i = 0; i < kAtomics; ++i)
      post(request, kTarget + i * sizeof(std::uint64_t), sizeof(std::uint64_t));
    for (std::size_t i = 0; i < kAtomics; ++i) completion("atomic");
    for (std::size_t i = 0; i < kAtomics; ++i) {
      std::uint64_t before = 0;
      std::memcpy(&before, memory_.data() + kTarget + i * sizeof(before), sizeof(before));
      require(before == i, "atomic " + std::to_string(i) + " found " + std::to_string(before));
    }
  }

  void read_back() {
    constexpr std::uint32_t kLength = 100'001;
    ibv_send_wr request = {};
    request.opcode = IBV_WR_RDMA_READ;
    request.wr.rdma = {peer_.address + sizeof(std::uint64_t), peer_.key};
    post(request, kTarget, kLength);
    completion("READ");
    for (std::size_t i = 0; i < kLength; ++i)
      require(memory_[kTarget + i] == byte_at(0, i + sizeof(std::uint64_t)), "READ: byte " + std::to_string(i));
  }

  // Writes through the peer's window, and gives it back with a SEND.
  void use_window() {
    fill(kWindowBytes);
    ibv_send_wr request = {};
    request.opcode = IBV_WR_RDMA_WRITE;
    const auto key = line_.hear<std::uint32_t>();
    request.wr.rdma = {peer_.address + kTarget, key};
    post(request, sizeof(std::uint64_t), kWindowBytes);
    completion("WRITE through a window");
    line_.meet();
    line_.meet();  // a receive is posted
    request = {};
    request.opcode = IBV_WR_SEND_WITH_INV;
    request.invalidate_rkey = key;
    post(request, 0, kWindowBytes);
    completion("SEND with invalidate");
    line_.meet();
  }

  void lend_window() {
    std::memset(memory_.data() + kTarget, 0, kBytes - kTarget);
    ibv_mw* const window = ibv_alloc_mw(domain_, IBV_MW_TYPE_2);
    require(window != nullptr, "no memory window");
    bind(window);
    line_.say(window->rkey);
    line_.meet();
    for (std::size_t i = 0; i < kWindowBytes; ++i)
      require(memory_[kTarget + i] == byte_at(kWindowBytes, i + sizeof(std::uint64_t)),
              "WRITE through a window: byte " + std::to_string(i));
    post_receive();
    line_.meet();
    const ibv_wc came = completion("SEND with invalidate");
    require(came.opcode == IBV_WC_RECV && came.byte_len == kWindowBytes, "SEND with invalidate: length");
    // The kernel's NIC, as of Linux 6.1, does not tell programs what was invalidated; that it was shows below.
    if ((came.wc_flags & IBV_WC_WITH_INV) != 0)
      require(came.invalidated_rkey == window->rkey, "SEND with invalidate: another key");
    bind(window);  // which would fail if it were still bound
    line_.meet();
    require(ibv_dealloc_mw(window) == 0, "the memory window stays");
  }

  void bind(ibv_mw* window) {
    ibv_send_wr request = {};
    request.opcode = IBV_WR_BIND_MW;
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_mw.mw = window;
    request.bind_mw.rkey = ibv_inc_rkey(window->rkey);
    request.bind_mw.bind_info = {region_, reinterpret_cast<std::uint64_t>(memory_.data() + kTarget), kWindowBytes,
                                 IBV_ACCESS_REMOTE_WRITE};
    ibv_send_wr* bad = nullptr;
    require(ibv_post_send(queue_pair_, &request, &bad) == 0, "cannot post a binding");
    require(completion("binding").opcode == IBV_WC_BIND_MW, "binding: opcode");
    window->rkey = request.bind_mw.rkey;
  }

  const ibv_qp_type type_;
  std::vector<std::uint8_t> memory_;
  Line line_;
  Card peer_ = {};
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_cq* completions_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp* queue_pair_ = nullptr;
  ibv_ah* handle_ = nullptr;
};

Options options_of(int argc, char** argv) {
  Options options;
  require(argc >= 2, "rc, uc or ud?");
  const std::string type = argv[1];
  require(type == "rc" || type == "uc" || type == "ud", "rc, uc or ud?");
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
    const Options options = options_of(argc, argv);
    Talk talk(options);
    const bool is_client = options.address != nullptr;
    is_client ? talk.ask() : talk.answer();
    is_client ? talk.answer() : talk.ask();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbs-talk: %s\n", error.what());
    return 1;
  }
  return 0;
}
