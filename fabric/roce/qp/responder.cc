// What the responders of all transports have in common.
#include "fabric/roce/qp/responder.h"

#include "fabric/roce/memory/scatter_gather_list.h"

namespace plugfest::roce {

void Responder::start(const Settings& settings) {
  settings_ = settings;
  started_ = true;
  expected_ = settings.first_psn;
}

void Responder::reset(bool shared_receives) {
  started_ = receive_taken_ = false;
  PostedReceive unused;
  while (!shared_receives && receives_.take(unused)) {
  }
}

void Responder::flush(bool shared_receives) {
  ibv_wc completion = {};
  completion.status = IBV_WC_WR_FLUSH_ERR;
  completion.opcode = IBV_WC_RECV;
  if (receive_taken_) complete_receive(completion, true);
  while (!shared_receives && take_receive()) complete_receive(completion, true);
}

std::byte* Responder::remote_memory(std::uint64_t address, std::uint32_t key, std::uint64_t length,
                                    unsigned needed) const {
  if ((connection_.access & needed) != needed) return nullptr;
  return connection_.nic.memory.find_for_peer(connection_.domain, connection_.number, key, address, length, needed);
}

std::uint64_t Responder::room_in_receive() const {
  std::uint64_t room = 0;
  for (int i = 0; i < receive_.segment_count; ++i) room += receive_.segments[i].length;
  return room;
}

bool Responder::place(std::uint64_t offset, std::span<const std::byte> bytes) const {
  ScatterGatherList pieces;
  if (!pieces.resolve(connection_.nic.memory, connection_.domain,
                      {receive_.segments, static_cast<std::size_t>(receive_.segment_count)}, IBV_ACCESS_LOCAL_WRITE))
    return false;
  pieces.copy_in(offset, bytes);
  return true;
}

void Responder::complete_message(const Packet& packet, const OperationTraits& traits, std::uint64_t bytes) {
  ibv_wc completion = {};
  completion.opcode = traits.send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  completion.byte_len = static_cast<std::uint32_t>(bytes);
  completion.src_qp = connection_.remote_number;
  if (traits.has_immediate) {
    completion.wc_flags = IBV_WC_WITH_IMM;
    completion.imm_data = packet.headers.immediate;
  }
  if (traits.has_invalidate) {
    completion.wc_flags = IBV_WC_WITH_INV;
    completion.invalidated_rkey = packet.headers.key;
  }
  complete_receive(completion, packet.headers.solicited);
}

void Responder::complete_receive(ibv_wc completion, bool solicited) {
  completion.wr_id = receive_.wr_id;
  completion.qp_num = connection_.number;
  receive_taken_ = false;
  completions_.push(completion, solicited);
}

}  // namespace plugfest::roce
