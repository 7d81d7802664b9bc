#include "harness/trace/chrome_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace plugfest::trace {
namespace {

using nlohmann::json;

json events_of(const ChromeTrace& trace) { return json::parse(trace.json()).at("traceEvents"); }

TEST(ChromeTrace, IsValidWithoutCalls) { EXPECT_TRUE(events_of(ChromeTrace()).empty()); }

TEST(ChromeTrace, HasATrackPerRankAndThread) {
  ChromeTrace trace;
  trace.on_call("a.eth0", {"svc", "connect(device 0)", "NULL", 5000, 7500, 1});
  trace.on_call("a.eth0", {"prog", "isend(comm 0x1, 8 bytes, tag 0)", "request 0x2", 9000, 9500, 1});
  trace.on_call("b.eth0", {"svc", "listen(device 0)", "listener 0x1", 4000, 4100, 1});
  const json events = events_of(trace);
  const json expected = json::parse(R"j([
    {"ph":"M","name":"process_name","pid":1,"args":{"name":"a.eth0"}},
    {"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"prog"}},
    {"ph":"X","name":"isend","pid":1,"tid":1,"ts":5.0,"dur":0.5,
     "args":{"call":"isend(comm 0x1, 8 bytes, tag 0)","result":"request 0x2"}},
    {"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"svc"}},
    {"ph":"X","name":"connect","pid":1,"tid":2,"ts":1.0,"dur":2.5,"args":{"call":"connect(device 0)","result":"NULL"}},
    {"ph":"M","name":"process_name","pid":2,"args":{"name":"b.eth0"}},
    {"ph":"M","name":"thread_name","pid":2,"tid":3,"args":{"name":"svc"}},
    {"ph":"X","name":"listen","pid":2,"tid":3,"ts":0.0,"dur":0.1,
     "args":{"call":"listen(device 0)","result":"listener 0x1"}}
  ])j");
  EXPECT_EQ(events, expected);
}

TEST(ChromeTrace, MergesPolls) {
  ChromeTrace trace;
  trace.on_call("a.eth0", {"prog", "test(request 0x2)", "not done", 1000, 2000, 1});
  trace.on_call("a.eth0", {"prog", "test(request 0x2)", "not done", 3000, 4000, 1});
  trace.on_call("a.eth0", {"prog", "test(request 0x2)", "done", 5000, 6000, 1});
  const json events = events_of(trace);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2].at("args").at("calls"), 2);
  EXPECT_EQ(events[2].at("dur"), 3.0);
  EXPECT_EQ(events[3].at("args").at("result"), "done");
}

TEST(ChromeTrace, AcceptsAnyBytesInNames) {
  ChromeTrace trace;
  trace.add_span("rules", "a.eth0-b.eth0", "CN-06 \"quoted\"\n", "\xff\xfe", 0, 1);
  EXPECT_EQ(events_of(trace).back().at("name"), "CN-06 \"quoted\"\n");
}

}  // namespace
}  // namespace plugfest::trace
