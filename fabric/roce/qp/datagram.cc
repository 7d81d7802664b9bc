#include "fabric/roce/qp/datagram.h"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "fabric/roce/qp/queue_pair.h"

namespace plugfest::roce {
namespace {

// A Q_Key with this bit means the Q_Key of the sending queue pair.
constexpr std::uint32_t kOwnQKey = 1u << 31;

}  // namespace

DatagramRequester::DatagramRequester(Connection& connection, CompletionQueue& completions,
                                     const ibv_qp_cap& capabilities, bool signal_all)
    : UnreliableRequester(connection, completions, capabilities, signal_all),
      max_requests_(capabilities.max_send_wr),
      recipients_(make_lazy_array<Recipient>(max_requests_)) {}

int DatagramRequester::post(const ibv_send_wr& request) {
  const auto* const handle = static_cast<const AddressHandle*>(request.wr.ud.ah);
  if (handle == nullptr || &handle->domain != &connection_.domain) return EINVAL;
  // A message is one packet. Its length is checked before it is queued.
  std::uint64_t length = 0;
  for (int i = 0; i < request.num_sge; ++i) length += request.sg_list[i].length;
  if (length > connection_.path_mtu_bytes) return EINVAL;
  if (const int error = open_path(handle->destination); error != 0) return error;
  const std::uint64_t number = queue_.end();
  const int error = UnreliableRequester::post(request);
  if (error != 0) return error;
  const std::uint32_t q_key = request.wr.ud.remote_qkey;
  recipient_of(number) = {handle->destination, request.wr.ud.remote_qpn & 0xffffffu,
                          (q_key & kOwnQKey) != 0 ? connection_.q_key : q_key};
  return 0;
}

// Opens the sockets for a destination, so that post_send can report a failure. Returns 0 or an errno value.
int DatagramRequester::open_path(const Destination& destination) {
  if (checked_ == destination) return 0;
  try {
    path_to(destination, connection_.nic.ports, connection_.number);
  } catch (const std::system_error& error) {
    return error.code().value();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  checked_ = destination;
  return 0;
}

const Path* DatagramRequester::address(std::uint64_t number, const SendRequest& /*request*/, Headers& headers) {
  const Recipient& recipient = recipient_of(number);
  if (path_.socket == nullptr || destination_ != recipient.destination) {
    if (!connection_.nic.batch.flush()) return nullptr;
    path_ = path_to(recipient.destination, connection_.nic.ports, connection_.number);
    destination_ = recipient.destination;
  }
  headers.destination = recipient.number;
  headers.q_key = recipient.q_key;
  headers.source = connection_.number;
  return &path_;
}

namespace {

constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kUdpBytes = 8;

// The value that mlx5 reports in ibv_wc::sl of a RoCE datagram. UCX before 1.19 uses it to find the addresses in the
// GRH.
constexpr std::uint8_t kPacketTypeIpv6 = 1;
constexpr std::uint8_t kPacketTypeIpv4 = 2;

// The checksum of RFC 1071. Input and result are in network order.
std::uint16_t internet_checksum(const std::byte* bytes, std::size_t count) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < count; i += 2) {
    std::uint16_t word;
    std::memcpy(&word, bytes + i, sizeof(word));
    sum += word;
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

}  // namespace

std::array<std::byte, kGrhBytes> grh_of(const Arrival& arrival, std::size_t udp_payload_bytes) {
  const auto udp_bytes = static_cast<std::uint16_t>(kUdpBytes + udp_payload_bytes);
  std::array<std::byte, kGrhBytes> grh = {};
  if (!arrival.destination.is_ipv4()) {
    ip6_hdr header = {};
    static_assert(sizeof(header) == kGrhBytes);
    header.ip6_flow = htonl(6u << 28 | std::uint32_t{arrival.traffic_class} << 20);
    header.ip6_plen = htons(udp_bytes);
    header.ip6_nxt = IPPROTO_UDP;
    header.ip6_hlim = arrival.hop_limit;
    std::memcpy(&header.ip6_src, arrival.source.address.bytes.data(), sizeof(header.ip6_src));
    std::memcpy(&header.ip6_dst, arrival.destination.bytes.data(), sizeof(header.ip6_dst));
    std::memcpy(grh.data(), &header, sizeof(header));
    return grh;
  }
  iphdr header = {};
  static_assert(sizeof(header) == kIpv4Bytes);
  header.version = 4;
  header.ihl = kIpv4Bytes / 4;
  header.tos = arrival.traffic_class;
  header.tot_len = htons(static_cast<std::uint16_t>(kIpv4Bytes + udp_bytes));
  header.frag_off = htons(IP_DF);
  header.ttl = arrival.hop_limit;
  header.protocol = IPPROTO_UDP;
  header.saddr = arrival.source.address.ipv4().s_addr;
  header.daddr = arrival.destination.ipv4().s_addr;
  header.check = internet_checksum(reinterpret_cast<const std::byte*>(&header), sizeof(header));
  std::memcpy(grh.data() + kGrhBytes - kIpv4Bytes, &header, sizeof(header));
  return grh;
}

void DatagramResponder::receive(const Packet& packet, const Arrival& arrival) {
  if (!started_) return;
  const Headers& headers = packet.headers;
  Counters& counters = connection_.nic.counters;
  if (headers.q_key != connection_.q_key) {
    ++counters.q_key_violations;
    return;
  }
  // A receive that is too small is kept for a shorter datagram.
  const std::size_t bytes = packet.payload.size();
  if (bytes > connection_.path_mtu_bytes || !take_receive() || kGrhBytes + bytes > room_in_receive()) {
    ++counters.dropped_messages;
    return;
  }
  const std::size_t udp_payload_bytes =
      header_bytes(headers.transport, headers.operation) + bytes + headers.pad_bytes + kIcrcBytes;
  ibv_wc completion = {};
  completion.opcode = IBV_WC_RECV;
  if (!place(0, grh_of(arrival, udp_payload_bytes)) || !place(kGrhBytes, packet.payload)) {
    completion.status = IBV_WC_LOC_PROT_ERR;
    complete_receive(completion, true);
    connection_.queue_pair.enter_error();
    return;
  }
  completion.byte_len = static_cast<std::uint32_t>(kGrhBytes + bytes);
  completion.src_qp = headers.source;
  completion.wc_flags = IBV_WC_GRH;
  completion.sl = arrival.destination.is_ipv4() ? kPacketTypeIpv4 : kPacketTypeIpv6;
  if (traits_of(headers.operation).has_immediate) {
    completion.wc_flags |= IBV_WC_WITH_IMM;
    completion.imm_data = headers.immediate;
  }
  complete_receive(completion, headers.solicited);
}

}  // namespace plugfest::roce
