// Messages that are sent before their receive is posted, and peers that break the protocol.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "plugins/mesh/device/device.h"
#include "plugins/mesh/handshake/message.h"
#include "plugins/mesh/handshake/socket.h"
#include "plugins/mesh/testing/net_fixture.h"
#include "plugins/mesh/transfer/queue_pair.h"
#include "plugins/mesh/transfer/slots.h"

namespace mesh {
namespace {

constexpr int kTag = 7;

class EagerTest : public NetTest {
 protected:
  ~EagerTest() override {
    for (const char* name : {"NCCL_MESH_EAGER", "NCCL_MESH_CUDA", "NCCL_MESH_QPS_PER_LINK"}) unsetenv(name);
  }

  // The first message of a comm to a receive that exists sets the eager tag.
  void connect_and_exchange() {
    connect();
    deliver(8, kTag);
  }
  // Calls isend until it returns an error, for at most a minute.
  Result failure_of_send(Memory& from) {
    Result result = Result::kSuccess;
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
         result == Result::kSuccess && std::chrono::steady_clock::now() < end;) {
      void* request = kStale;
      result = net::isend(send_, from.bytes.data(), from.bytes.size(), kTag, from.handle, nullptr, &request);
      EXPECT_EQ(request, nullptr);
    }
    return result;
  }
};

TEST_F(EagerTest, SendsAreDoneBeforeTheirReceives) {
  connect_and_exchange();
  std::vector<std::size_t> sizes = {1, 0, 4096, 8, 4095, 129, 128};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Memory from(send_, sizes[i], static_cast<std::uint8_t>(i + 1));
    void* send = post_send(from, kTag);
    ASSERT_NE(send, nullptr);
    EXPECT_EQ(done(send), Sizes{static_cast<int>(sizes[i])});
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Memory to(receive_, 10000);
    EXPECT_EQ(sizes_of(post_receive({&to}, {kTag})), Sizes{static_cast<int>(sizes[i])});
    std::vector<std::uint8_t> expected(10000);
    std::fill_n(expected.begin(), sizes[i], static_cast<std::uint8_t>(i + 1));
    EXPECT_EQ(to.bytes, expected);
  }
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(EagerTest, MessagesBehindOthersAreSentByTheNextTest) {
  connect_and_exchange();
  Memory from(send_, 8, 3), other(send_, 16, 4), to(receive_, 8), next(receive_, 16);
  post_send(from, kTag);
  void* const send = post_send(other, kTag);
  ASSERT_NE(send, nullptr);
  EXPECT_EQ(sizes_of(post_receive({&to}, {kTag})), Sizes{8});
  void* const receive = post_receive({&next}, {kTag});
  EXPECT_EQ(sizes_of(receive), Sizes{}) << "the second message was sent before a test of the sender";
  EXPECT_EQ(sizes_of(send), Sizes{16});
  EXPECT_EQ(sizes_of(receive), Sizes{16});
  EXPECT_EQ(next.bytes, other.bytes);
}

TEST_F(EagerTest, MemoryOfAMessageBehindOthersMayBeDeregisteredAndFreed) {
  connect_and_exchange();
  Memory from(send_, 8, 3), to(receive_, 8), next(receive_, 16);
  post_send(from, kTag);
  void* send = nullptr;
  {
    Memory other(send_, 16, 4);
    send = post_send(other, kTag);
  }
  ASSERT_NE(send, nullptr);
  EXPECT_EQ(sizes_of(post_receive({&to}, {kTag})), Sizes{8});
  EXPECT_EQ(sizes_of(send), Sizes{16});
  EXPECT_EQ(sizes_of(post_receive({&next}, {kTag})), Sizes{16});
  EXPECT_EQ(next.bytes, std::vector<std::uint8_t>(16, 4));
}

TEST_F(EagerTest, SendsWaitWhenAllBounceSlotsAreInUse) {
  connect_and_exchange();
  Memory from(send_, 8, 3), other(send_, 16, 4), large(send_, 4097, 5), to(receive_, 8), group(receive_, 16);
  for (std::uint32_t i = 0; i < kBounceSlots; ++i) EXPECT_NE(post_send(from, kTag), nullptr);
  EXPECT_EQ(post_send(from, kTag), nullptr);
  // Another message of the same receive does not need a slot.
  void* both = post_receive({&to, &group}, {kTag, kTag + 1});
  void* send = post_send(other, kTag + 1);
  ASSERT_NE(send, nullptr);
  EXPECT_EQ(sizes_of(send), Sizes{16});
  EXPECT_EQ(sizes_of(both, 2), (Sizes{8, 16}));
  for (std::uint32_t i = 1; i < kBounceSlots / 2; ++i) {
    EXPECT_EQ(post_send(from, kTag), nullptr);
    EXPECT_EQ(sizes_of(post_receive({&to}, {kTag})), Sizes{8});
  }
  EXPECT_NE(post_send(from, kTag), nullptr);
  EXPECT_TRUE(g_warnings.empty());
}

TEST_F(EagerTest, NeedsHostMemoryASingleLaneAndItsSetting) {
  for (const char* setting : {"NCCL_MESH_EAGER=0", "NCCL_MESH_CUDA=1", "NCCL_MESH_QPS_PER_LINK=2", ""}) {
    const std::string text = setting;
    if (!text.empty()) setenv(text.substr(0, text.find('=')).c_str(), text.substr(text.find('=') + 1).c_str(), 1);
    connect_and_exchange();
    {
      Memory from(send_, 8, 3);
      EXPECT_EQ(post_send(from, kTag) != nullptr, text.empty()) << text;
    }
    close_send();
    close_receive();
    ASSERT_EQ(net::finalize(context_), Result::kSuccess);
    context_ = nullptr;
    if (!text.empty()) unsetenv(text.substr(0, text.find('=')).c_str());
  }
  setenv("NCCL_MESH_EAGER", "100", 1);
  connect_and_exchange();
  Memory from(send_, 101, 3);
  EXPECT_EQ(post_send(from, kTag, 101), nullptr);
  EXPECT_NE(post_send(from, kTag, 100), nullptr);
}

TEST_F(EagerTest, NeedsAFirstReceiveOfOneBufferAndItsTag) {
  connect_and_exchange();
  Memory from(send_, 8, 3), to(receive_, 8), also(receive_, 8);
  EXPECT_EQ(post_send(from, kTag + 1), nullptr);
  connect();
  Memory other_from(send_, 8, 3), other_to(receive_, 8), other_also(receive_, 8);
  void* group = post_receive({&other_to, &other_also}, {kTag, kTag});
  EXPECT_EQ(done(post_send(other_from, kTag)), Sizes{8});
  EXPECT_EQ(done(post_send(other_from, kTag)), Sizes{8});
  EXPECT_EQ(sizes_of(group, 2), (Sizes{8, 8}));
  EXPECT_EQ(post_send(other_from, kTag), nullptr);
}

TEST_F(EagerTest, AMessageLargerThanItsReceiveFailsAndWritesNothing) {
  connect_and_exchange();
  Memory from(send_, 100, 9), to(receive_, 50);
  void* receive = post_receive({&to}, {kTag});
  EXPECT_EQ(done(post_send(from, kTag)), Sizes{100});
  EXPECT_EQ(failure_of(receive), Result::kInvalidUsage);
  EXPECT_EQ(to.bytes, std::vector<std::uint8_t>(50));
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: a message of 100 bytes, tag 7, from the peer at 127.0.0.1 (through fake0): the matching receive "
            "has 50 bytes");

  connect_and_exchange();  // the message first
  Memory second_from(send_, 100, 9), second_to(receive_, 50);
  EXPECT_EQ(done(post_send(second_from, kTag)), Sizes{100});
  void* request = kStale;
  Result result = try_receive(second_to, kTag, &request);
  if (result == Result::kSuccess) result = failure_of(request);
  EXPECT_EQ(result, Result::kInvalidUsage);
  EXPECT_EQ(second_to.bytes, std::vector<std::uint8_t>(50));
}

TEST_F(EagerTest, AMessageTooLargeForAReceiveThatIsNotAnnouncedFails) {
  for (const bool receive_first : {true, false}) {
    connect_and_exchange();
    Memory from(send_, 5000, 9), to(receive_, 50);
    void* receive = receive_first ? post_receive({&to}, {kTag}) : nullptr;
    // The receiver must answer the question of the sender, so that both make progress.
    Result result = Result::kSuccess;
    while (result == Result::kSuccess) {
      void* request = kStale;
      result = net::isend(send_, from.bytes.data(), 5000, kTag, from.handle, nullptr, &request);
      EXPECT_EQ(request, nullptr);
      if (receive == nullptr) receive = post_receive({&to}, {kTag});
      EXPECT_EQ(done(receive), Sizes{});
    }
    EXPECT_EQ(result, Result::kInvalidUsage);
    EXPECT_EQ(g_warnings.back(), "NET/mesh: isend of 5000 bytes, tag 7: the matching receive has 50 bytes");
    // As with any other refused send, the receive takes the next message.
    void* send = post_send(from, kTag, 50);
    EXPECT_EQ(sizes_of(send), Sizes{50});
    EXPECT_EQ(sizes_of(receive), Sizes{50});
    deliver(8, kTag);
  }
}

TEST_F(EagerTest, AMessageTooLargeForAReceiveBeforeAnAnnouncedOneFails) {
  connect_and_exchange();
  Memory from(send_, 5000, 9), to(receive_, 50), large(receive_, 6000);
  void* first = post_receive({&to}, {kTag});
  void* second = post_receive({&large}, {kTag});
  EXPECT_EQ(failure_of_send(from), Result::kInvalidUsage);
  EXPECT_EQ(g_warnings.back(), "NET/mesh: isend of 5000 bytes, tag 7: the matching receive has at most 4096 bytes");
  void* small_send = post_send(from, kTag, 10);
  void* large_send = post_send(from, kTag);
  EXPECT_EQ(sizes_of(first), Sizes{10});
  EXPECT_EQ(sizes_of(second), Sizes{5000});
  EXPECT_EQ(sizes_of(small_send), Sizes{10});
  EXPECT_EQ(sizes_of(large_send), Sizes{5000});
}

TEST_F(EagerTest, MessagesArriveAfterTheirSenderHasLeft) {
  connect_and_exchange();
  Memory to(receive_, 8), also(receive_, 8);
  void* receive = nullptr;
  {
    Memory first(send_, 8, 3), second(send_, 8, 4);
    EXPECT_EQ(done(post_send(first, kTag)), Sizes{8});
    EXPECT_EQ(done(post_send(second, kTag)), Sizes{8});
  }
  close_send();
  receive = post_receive({&to}, {kTag});
  EXPECT_EQ(sizes_of(receive), Sizes{8});
  EXPECT_EQ(to.bytes, std::vector<std::uint8_t>(8, 3));
  // A receive with another tag detects that the sender has left. The second message has arrived nevertheless.
  Memory other(receive_, 8);
  void* none = post_receive({&other}, {kTag + 1});
  EXPECT_EQ(failure_of(none), Result::kRemoteError);
  EXPECT_EQ(sizes_of(post_receive({&also}, {kTag})), Sizes{8});
  EXPECT_EQ(also.bytes, std::vector<std::uint8_t>(8, 4));
  void* request = kStale;
  EXPECT_EQ(try_receive(other, kTag, &request), Result::kRemoteError);
}

TEST_F(EagerTest, DeregisteredReceiveBufferIsNotWritten) {
  connect_and_exchange();
  Memory from(send_, 8, 7), to(receive_, 8);
  void* receive = post_receive({&to}, {kTag});
  ASSERT_EQ(net::dereg_mr(receive_, to.handle), Result::kSuccess);
  to.handle = nullptr;
  post_send(from, kTag);
  EXPECT_EQ(failure_of(receive), Result::kInternalError);
  EXPECT_EQ(to.bytes, std::vector<std::uint8_t>(8));
}

TEST_F(EagerTest, DeregistrationWaitsForTheEndOfACopy) {
  for (int round = 0; round < 50; ++round) {
    connect_and_exchange();
    Memory from(send_, 4096, 7);
    auto to = std::make_unique<Memory>(receive_, 4096);
    void* receive = post_receive({to.get()}, {kTag});
    post_send(from, kTag);
    std::thread other([&] { to.reset(); });  // frees the memory
    int done = 0, size = 0;
    Result result = Result::kSuccess;
    while (done == 0 && result == Result::kSuccess) result = net::test(receive, &done, &size);
    // A copy into memory that is freed is a finding of AddressSanitizer.
    if (result == Result::kSuccess)
      EXPECT_EQ(size, 4096);
    else
      EXPECT_EQ(result, Result::kInternalError) << "the buffer was deregistered before the copy";
    other.join();
    if (from.handle != nullptr) net::dereg_mr(send_, from.handle);
    from.handle = nullptr;
    close_send();
    close_receive();
  }
}

// The n-th message with a tag takes the n-th buffer with this tag, however calls of both sides alternate.
TEST_F(EagerTest, RandomTransfersMatchAsInAReferenceModel) {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t limit) { return random() % limit; };
    connect();
    constexpr int kMessages = 400;
    // A message's size is at most the minimum of the sizes of all buffers with its number.
    std::map<int, std::vector<std::size_t>> sizes;
    for (int tag = 0; tag < 3; ++tag)
      for (int i = 0; i < kMessages; ++i)
        sizes[tag].push_back(below(4) == 0 ? 4097 + below(9000) : below(4) == 0 ? 0 : below(4097));
    Memory to(receive_, std::size_t{kMessages + kMaxGroup} * 16384);
    const auto content = [](int tag, std::size_t number) {
      return static_cast<std::uint8_t>((number * 3 + static_cast<std::size_t>(tag)) % 251 + 1);
    };
    struct Receive {
      void* request;
      std::vector<std::pair<int, std::size_t>> messages;  ///< tag and number
      std::vector<std::size_t> offsets;
    };
    std::deque<Receive> receives;
    struct Send {
      void* request;
      std::unique_ptr<Memory> memory;
      int size;
    };
    std::deque<Send> sends;
    std::map<int, std::size_t> posted, sent;
    // The tags in the order of their buffers, so that the sender has messages for the oldest receives.
    std::vector<std::vector<int>> plan;
    std::deque<int> to_send;
    for (int left = kMessages; left > 0;) {
      std::vector<int> tags(plan.empty() || below(3) != 0 ? 1 : 1 + below(8));
      for (int& tag : tags) tag = below(3) == 0 ? static_cast<int>(below(3)) : 0;
      left -= static_cast<int>(tags.size());
      if (plan.empty()) tags = {0};
      std::vector<int> shuffled = tags;
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      to_send.insert(to_send.end(), shuffled.begin(), shuffled.end());
      plan.push_back(std::move(tags));
    }
    std::size_t next_receive = 0, buffers = 0;
    const std::size_t eagerness = 1 + below(8);  // how often the sender is called
    while (next_receive < plan.size() || !to_send.empty() || !receives.empty() || !sends.empty()) {
      ASSERT_TRUE(g_warnings.empty()) << g_warnings.back();
      if (below(4) == 0 && next_receive < plan.size() && receives.size() < 20) {
        Receive receive = {.request = nullptr, .messages = {}, .offsets = {}};
        std::vector<void*> data, handles;
        std::vector<std::size_t> room;
        std::map<int, std::size_t> numbers = posted;
        for (const int tag : plan[next_receive]) {
          const std::size_t number = numbers[tag]++;
          receive.messages.emplace_back(tag, number);
          receive.offsets.push_back((buffers + data.size()) * 16384);
          data.push_back(to.bytes.data() + receive.offsets.back());
          room.push_back(sizes[tag][number] + (below(2) == 0 ? 0 : below(3000)));
          std::fill_n(to.bytes.begin() + static_cast<std::ptrdiff_t>(receive.offsets.back()), 16384, std::uint8_t{0});
          handles.push_back(to.handle);
        }
        ASSERT_EQ(net::irecv(receive_, static_cast<int>(data.size()), data.data(), room.data(),
                             plan[next_receive].data(), handles.data(), nullptr, &receive.request),
                  Result::kSuccess);
        if (receive.request != nullptr) {
          posted = numbers;
          receives.push_back(std::move(receive));
          buffers += receives.back().messages.size();
          ++next_receive;
        }
      }
      for (std::size_t i = 0; i < eagerness && !to_send.empty(); ++i) {
        // Any of the next messages, as the sends of a group come in any order.
        const std::size_t place = below(static_cast<std::uint32_t>(std::min<std::size_t>(to_send.size(), 4)));
        const int tag = to_send[place];
        if (sends.size() >= 60) break;
        const std::size_t size = sizes[tag][sent[tag]];
        auto memory = std::make_unique<Memory>(send_, size, content(tag, sent[tag]));
        void* request = post_send(*memory, tag);
        if (request == nullptr) break;
        sends.push_back({request, std::move(memory), static_cast<int>(size)});
        ++sent[tag];
        to_send.erase(to_send.begin() + static_cast<std::ptrdiff_t>(place));
      }
      if (!sends.empty() && below(2) == 0) {
        if (const Sizes size = done(sends.front().request); !size.empty()) {
          EXPECT_EQ(size, Sizes{sends.front().size});
          sends.pop_front();
        }
      }
      if (!receives.empty() && below(2) == 0) {
        const std::size_t place = below(static_cast<std::uint32_t>(receives.size()));
        const Receive& receive = receives[place];
        const Sizes got = done(receive.request, receive.messages.size());
        if (got.empty()) continue;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const auto [tag, number] = receive.messages[i];
          ASSERT_EQ(static_cast<std::size_t>(got[i]), sizes[tag][number]) << "seed " << seed;
          const auto begin = to.bytes.begin() + static_cast<std::ptrdiff_t>(receive.offsets[i]);
          ASSERT_EQ(std::count(begin, begin + 16384, 0), 16384 - got[i]) << "seed " << seed;
          ASSERT_TRUE(got[i] == 0 || *begin == content(tag, number)) << "seed " << seed;
        }
        receives.erase(receives.begin() + static_cast<std::ptrdiff_t>(place));
      }
    }
  }
}

// A peer that knows the secret and breaks the protocol.
class HostilePeerTest : public EagerTest {
 protected:
  HostilePeerTest()
      : device_(find_devices({}).front()),
        memory_(device_, 8192),
        announcements_(ReceiveRing::kBatch, kMaxGroupBytes, memory_) {}

  void make_queue_pair() {
    pair_ = std::make_unique<QueuePair>(device_, device_->gids().addresses().front().network.address,
                                        QueuePair::Depth{.send = 64, .receive = 16, .inline_bytes = 0}, 0);
    ASSERT_EQ(announcements_.post_all(*pair_), 0);
  }
  // Connects a queue pair of the test to a receive comm of the plugin, `receive_`.
  void connect_as_sender() {
    init();
    OpenListener listener(context_);
    const Handle handle = listener.handle();
    link_ = PeerLink(listener.dial());
    make_queue_pair();
    Hello hello = {.listener = handle.secret.listener_id(),
                   .nonce = make_nonce(),
                   .lanes = {{pair_->endpoint(), handle.addresses.front().network.address}},
                   .eager_bytes = 4096,
                   .proof = {}};
    ASSERT_TRUE(link_.send(with_proof(hello, handle.secret, hello.nonce)));
    ASSERT_EQ(listener.accept(&receive_), Result::kSuccess);
    const Welcome welcome = std::get<Welcome>(*link_.receive());
    bounce_ = welcome.bounce;
    pair_->connect(welcome.endpoints.front(), {});
    ASSERT_TRUE(link_.send(Ready{}));
    ASSERT_EQ(listener.accept(&receive_), Result::kSuccess);
    ASSERT_NE(receive_, nullptr);
    receives_.push_back(receive_);
  }
  // Connects a send comm of the plugin, `send_`, to a queue pair of the test.
  Result connect_as_receiver(const Bounce& bounce) {
    init();
    const Socket listener = *listen_on(device_->gids().addresses().front().network.address, 0);
    const Handle handle = {.port = static_cast<std::uint16_t>(port_of(listener)),
                           .secret = Secret::make(),
                           .addresses = {{device_->gids().addresses().front().network, true}},
                           .address_count = 1};
    HandleBytes bytes;
    encode_handle(handle, bytes);
    EXPECT_EQ(net::connect(context_, 0, bytes.data(), &send_, nullptr), Result::kSuccess);
    link_ = PeerLink(Socket(::accept(listener.fd(), nullptr, nullptr)));
    EXPECT_EQ(net::connect(context_, 0, bytes.data(), &send_, nullptr), Result::kSuccess);
    const Hello hello = std::get<Hello>(*link_.receive());
    make_queue_pair();
    pair_->connect(hello.lanes.front().endpoint, {});
    EXPECT_TRUE(link_.send(with_proof(Welcome{{pair_->endpoint()}, bounce, {}}, handle.secret, hello.nonce)));
    const Result result = net::connect(context_, 0, bytes.data(), &send_, nullptr);
    if (send_ != nullptr) sends_.push_back(send_);
    return result;
  }
  void post(ibv_wr_opcode opcode, std::uint32_t immediate, std::size_t bytes = 0) {
    ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(memory_.data()),
                     .length = static_cast<std::uint32_t>(bytes),
                     .lkey = memory_.local_key()};
    ibv_send_wr work = {};
    work.opcode = opcode;
    work.sg_list = &entry;
    work.num_sge = bytes > 0 ? 1 : 0;
    work.imm_data = htonl(immediate);
    work.wr.rdma.remote_addr = bounce_.address;
    work.wr.rdma.rkey = bounce_.remote_key;
    ASSERT_EQ(pair_->post_send(&work), 0);
  }
  void post_eager(std::size_t bytes) { post(IBV_WR_RDMA_WRITE_WITH_IMM, Arrival::kEager, bytes); }
  // Expects that the comm of this request fails because of the peer.
  void expect_failure(void* request, const std::string& why) {
    EXPECT_EQ(failure_of(request), Result::kRemoteError);
    EXPECT_THAT(g_warnings.back(), ::testing::HasSubstr(why + ": use the same plugin on all ranks"));
  }

  // The first receive has two buffers, so the comm has no eager tag.
  template <typename Post>
  void expect_refusal_without_tag(const Post& post_message, const char* why) {
    Memory to(receive_, 8), also(receive_, 8);
    void* receive = post_receive({&to, &also}, {kTag, kTag});
    post_message();
    int done = 0;
    EXPECT_EQ(net::test(receive, &done, nullptr), Result::kRemoteError);
    EXPECT_THAT(g_warnings.back(), ::testing::HasSubstr(why));
  }

  std::shared_ptr<const Device> device_;
  StagingMemory memory_;
  ReceiveRing announcements_;
  std::unique_ptr<QueuePair> pair_;
  PeerLink link_;
  Bounce bounce_;
};

TEST_F(HostilePeerTest, ReceiverRefusesLongEagerMessages) {
  connect_as_sender();
  EXPECT_EQ(bounce_.bytes, 4096u);
  Memory to(receive_, 8192);
  void* receive = post_receive({&to}, {kTag});
  post_eager(4097);
  expect_failure(receive, " sent an invalid eager message");
  EXPECT_EQ(to.bytes, std::vector<std::uint8_t>(8192));
}

TEST_F(HostilePeerTest, ReceiverRefusesEagerMessagesBeyondItsSlots) {
  connect_as_sender();
  Memory to(receive_, 8), other(receive_, 8);
  void* first = post_receive({&to}, {kTag});
  void* second = post_receive({&other}, {kTag + 1});
  for (std::uint32_t i = 0; i < kBounceSlots + 1; ++i) post_eager(8);
  EXPECT_EQ(sizes_of(first), Sizes{8});
  EXPECT_EQ(done(second), Sizes{});
  post_eager(8);
  expect_failure(second, " sent an invalid eager message");
}

TEST_F(HostilePeerTest, ReceiverRefusesEagerMessagesWithoutAnEagerTag) {
  connect_as_sender();
  expect_refusal_without_tag([this] { post_eager(8); }, " sent an invalid eager message");
}

TEST_F(HostilePeerTest, ReceiverRefusesQuestionsWithoutAnEagerTag) {
  connect_as_sender();
  expect_refusal_without_tag([this] { post(IBV_WR_SEND_WITH_IMM, 0xfd000000); }, " sent an invalid notice");
}

TEST_F(HostilePeerTest, SenderRefusesMoreFreeSlotsThanItUsed) {
  ASSERT_EQ(connect_as_receiver({.bytes = 4096, .remote_key = 1, .address = 4096}), Result::kSuccess);
  ASSERT_NE(send_, nullptr);
  Memory from(send_, 8);
  post(IBV_WR_SEND_WITH_IMM, 0xfd000001);
  EXPECT_EQ(failure_of_send(from), Result::kRemoteError);
  EXPECT_THAT(g_warnings.back(), ::testing::HasSubstr(" copied more messages than were sent: use the same plugin"));
}

TEST_F(HostilePeerTest, SenderRefusesSlotsThatItDidNotAskFor) {
  setenv("NCCL_MESH_EAGER", "100", 1);
  EXPECT_EQ(connect_as_receiver({.bytes = 4096, .remote_key = 1, .address = 4096}), Result::kRemoteError);
  EXPECT_EQ(g_warnings.back(),
            "NET/mesh: the peer expects eager messages of 4096 bytes, not of 100: use the same plugin on all ranks");
}

}  // namespace
}  // namespace mesh
