// Proofs of a listener's secret.
#include "plugins/mesh/handshake/secret.h"

#include <gtest/gtest.h>

#include "plugins/mesh/handshake/message.h"

namespace mesh {
namespace {

// Expected value: Python's hmac.new(bytes(range(16)), bytes(16) + b'abc', 'sha256').digest()[:16].
TEST(SecretTest, ProvesByHmacSha256) {
  const Secret secret = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
  const std::array<std::uint8_t, 3> content = {'a', 'b', 'c'};
  const Proof expected = {0xfc, 0x2a, 0x7a, 0x7f, 0x9d, 0x3e, 0x36, 0x9c,
                          0x22, 0x79, 0x80, 0x46, 0xc2, 0xd6, 0x7e, 0xcf};
  EXPECT_EQ(secret.prove(Nonce{}, content), expected);
}

TEST(SecretTest, ProofDependsOnSecretNonceAndEveryByteOfTheMessage) {
  const Secret secret = Secret::make();
  const Nonce nonce = make_nonce();
  const Hello hello =
      with_proof(Hello{.listener = secret.listener_id(), .nonce = nonce, .lanes = {LaneOffer{}}}, secret, nonce);
  EXPECT_TRUE(is_proven(hello, secret, nonce));
  EXPECT_FALSE(is_proven(hello, Secret::make(), nonce));
  EXPECT_FALSE(is_proven(hello, secret, make_nonce()));
  Hello other = hello;
  other.lanes.front().endpoint.queue_pair ^= 1;
  EXPECT_FALSE(is_proven(other, secret, nonce));
  other = hello;
  other.proof.back() ^= 1;
  EXPECT_FALSE(is_proven(other, secret, nonce));
}

// An Ask and a Hello of the same peer have different types, and so different proofs.
TEST(SecretTest, ProofOfOneMessageIsNoProofOfAnother) {
  const Secret secret = Secret::make();
  const Nonce nonce = make_nonce();
  const Ask ask = with_proof(Ask{.listener = secret.listener_id(), .nonce = nonce}, secret, nonce);
  const Hello hello = {.listener = ask.listener, .nonce = nonce, .lanes = {}, .proof = ask.proof};
  EXPECT_FALSE(is_proven(hello, secret, nonce));
}

TEST(SecretTest, ListenerIdDoesNotRevealTheSecret) {
  const Secret secret = Secret::make();
  EXPECT_NE(secret.listener_id(), secret.bytes);
  EXPECT_EQ(secret.listener_id(), secret.listener_id());
}

}  // namespace
}  // namespace mesh
