#include "fabric/roce/qp/transports.h"

#include <cerrno>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/qp/datagram.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/reliable_requester.h"
#include "fabric/roce/qp/reliable_responder.h"
#include "fabric/roce/qp/unreliable.h"
#include "fabric/system/file.h"

namespace plugfest::roce {
namespace {

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_BIND_MW:
      return IBV_WC_BIND_MW;
    case IBV_WR_LOCAL_INV:
      return IBV_WC_LOCAL_INV;
    default:
      return IBV_WC_SEND;
  }
}

}  // namespace

Operation operation_of(ibv_wr_opcode opcode, bool first, bool last) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      if (first && last) return Operation::kWriteOnly;
      if (first) return Operation::kWriteFirst;
      return last ? Operation::kWriteLast : Operation::kWriteMiddle;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      if (first && last) return Operation::kWriteOnlyImmediate;
      if (first) return Operation::kWriteFirst;
      return last ? Operation::kWriteLastImmediate : Operation::kWriteMiddle;
    case IBV_WR_SEND_WITH_IMM:
      if (first && last) return Operation::kSendOnlyImmediate;
      if (first) return Operation::kSendFirst;
      return last ? Operation::kSendLastImmediate : Operation::kSendMiddle;
    case IBV_WR_SEND_WITH_INV:
      if (first && last) return Operation::kSendOnlyInvalidate;
      if (first) return Operation::kSendFirst;
      return last ? Operation::kSendLastInvalidate : Operation::kSendMiddle;
    default:
      if (first && last) return Operation::kSendOnly;
      if (first) return Operation::kSendFirst;
      return last ? Operation::kSendLast : Operation::kSendMiddle;
  }
}

void Requester::announce_if_drained() {
  if (!announce_drained_ || !drained()) return;
  announce_drained_ = false;
  connection_.queue_pair.announce(IBV_EVENT_SQ_DRAINED);
}

void Requester::complete_oldest(ibv_wc_status status) {
  const SendRequest& request = queue_[queue_.oldest()];
  if (request.signaled || status != IBV_WC_SUCCESS) {
    ibv_wc completion = {};
    completion.wr_id = request.wr_id;
    completion.status = status;
    completion.opcode = completion_opcode(request.opcode);
    completion.byte_len = request.length;
    completion.qp_num = connection_.number;
    completions_.push(completion, status != IBV_WC_SUCCESS);
  }
  queue_.pop();
}

ibv_wc_status Requester::execute_locally(SendRequest& request) {
  if (request.done) return IBV_WC_SUCCESS;
  const bool invalidates = request.opcode == IBV_WR_LOCAL_INV;
  const std::uint32_t key = invalidates ? request.remote.key : request.binding.key;
  MemoryWindow* const window = connection_.nic.memory.window_at(key);
  if (invalidates) {
    request.done = window != nullptr && window->invalidate(key, connection_.number);
    return request.done ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR;
  }
  request.done = window != nullptr && window->bind(request.binding, connection_.domain, connection_.number);
  return request.done ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
}

bool Requester::find_memory(std::uint64_t number, const SendRequest& request, ScatterGatherList& pieces) const {
  if (request.is_inline) {
    pieces.set(queue_.inline_bytes_of(number), request.length);
    return true;
  }
  // A response is written into the memory, which needs a right; reading the memory needs none.
  const unsigned needed = request.awaits_response() ? IBV_ACCESS_LOCAL_WRITE : 0;
  return pieces.resolve(connection_.nic.memory, connection_.domain, {queue_.segments_of(number), request.segment_count},
                        needed);
}

void Responder::start(const Settings& settings) {
  settings_ = settings;
  started_ = true;
  expected_ = settings.first_psn;
}

void Responder::reset(bool shared_receives) {
  started_ = receive_taken_ = false;
  PostedReceive unused;
  while (!shared_receives && receives_->take(unused)) {
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
  return connection_.nic.memory.find_for_peer(*domain_, connection_.number, key, address, length, needed);
}

std::uint64_t Responder::room_in_receive() const {
  std::uint64_t room = 0;
  for (int i = 0; i < receive_.segment_count; ++i) room += receive_.segments[i].length;
  return room;
}

bool Responder::place(std::uint64_t offset, std::span<const std::byte> bytes) const {
  ScatterGatherList pieces;
  if (!pieces.resolve(connection_.nic.memory, *domain_,
                      {receive_.segments, static_cast<std::size_t>(receive_.segment_count)}, IBV_ACCESS_LOCAL_WRITE))
    return false;
  return pieces.copy_in(offset, bytes);
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
  completions_->push(completion, solicited);
}

Transport transport_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return Transport::kReliable;
    case IBV_QPT_UC:
      return Transport::kUnreliable;
    case IBV_QPT_UD:
      return Transport::kDatagram;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return Transport::kExtended;
    default:
      throw_errno("create a queue pair of this type", EOPNOTSUPP);
  }
}

std::unique_ptr<Requester> make_requester(Connection& connection, const QueuePairSettings& settings) {
  CompletionQueue& completions = *settings.send_queue;
  const ibv_qp_cap& capabilities = settings.capabilities;
  const bool signal_all = settings.signal_all;
  switch (connection.transport) {
    case Transport::kUnreliable:
      return std::make_unique<UnreliableRequester>(connection, completions, capabilities, signal_all);
    case Transport::kDatagram:
      return std::make_unique<DatagramRequester>(connection, completions, capabilities, signal_all);
    case Transport::kReliable:
    case Transport::kExtended:
    case Transport::kNotification:  // no queue pair has this transport
      break;
  }
  return std::make_unique<ReliableRequester>(connection, completions, capabilities, signal_all);
}

std::unique_ptr<Responder> make_responder(Connection& connection, CompletionQueue& completions,
                                          ReceiveQueue& receives) {
  switch (connection.transport) {
    case Transport::kUnreliable:
      return std::make_unique<UnreliableResponder>(connection, completions, receives);
    case Transport::kDatagram:
      return std::make_unique<DatagramResponder>(connection, completions, receives);
    case Transport::kReliable:
    case Transport::kExtended:
    case Transport::kNotification:  // no queue pair has this transport
      break;
  }
  return std::make_unique<ReliableResponder>(connection, completions, receives);
}

}  // namespace plugfest::roce
