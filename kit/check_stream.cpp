// [STR-n] and [EVT-n]: streams, faults, events.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "actions.h"

namespace kit {

namespace {

const Number kOne = Number::floating(1);

// What the device holds, read over a stream of its own: without waiting for the tensor's stream.
float peek(Tensor& x) {
  Session other(x.session->device);
  float value = 0;
  other.download(&value, static_cast<const char*>(x.view()->data), 4);
  return value;
}

KIT_TEST("STR-1", "destroying a stream leaves the work queued on it to be done") {
  Session session;
  Tensor x = session.output(FL_F32, {1});
  session.synchronize();
  fl_stream stream = nullptr;
  ok(chip().stream.create(0, 0, &stream), "stream create");
  Event done;
  {
    Session queue;
    std::swap(queue.stream, stream);  // queue.stream is destroyed with its work
    queue.launch.stream = queue.stream;
    busy(queue, 30);
    fill(queue.launch, x, kOne);
    ok(chip().stream.event_record(done, queue.stream), "event record");
    fl_stream doomed = queue.stream;
    queue.stream = stream;
    ok(chip().stream.destroy(doomed), "destroy");
  }
  ok(chip().stream.event_synchronize(done, -1), "event synchronize");
  REQUIRE(peek(x) == 1, "the fill did not happen");
}

KIT_TEST("STR-2", "synchronize returns FL_TIMEOUT when its limit passes, and the work goes on") {
  Session session;
  Tensor x = session.output(FL_F32, {1});
  session.synchronize();
  busy(session, 150);
  fill(session.launch, x, kOne);
  double start = now_ms();
  fl_status status = chip().stream.synchronize(session.stream, 1000000);
  double took = now_ms() - start;
  REQUIRE(status == FL_TIMEOUT || status == FL_OK, "it gave %s", status_name(status));
  REQUIRE(status != FL_OK || chip().stream.query(session.stream) == FL_OK, "it gave FL_OK with work pending");
  REQUIRE(status == FL_TIMEOUT || took < 75, "with a limit of 1 ms it waited %.0f ms for all of the work",
          took);
  REQUIRE(took < 120, "with a limit of 1 ms it took %.0f ms", took);
  ok(chip().stream.synchronize(session.stream, 20ll * 1000 * 1000 * 1000), "synchronize(20 s)");
  REQUIRE(peek(x) == 1, "the work did not go on");
}

KIT_TEST("STR-3", "with an untaken fault synchronize returns its status, each time until it is taken") {
  Session session;
  cause_fault(session, 77);
  for (int i = 0; i < 3; ++i)
    expect_status(chip().stream.synchronize(session.stream, -1), FL_INDEX_OUT_OF_RANGE,
                  "synchronize after a fault");
  fl_fault fault;
  ok(take_fault(session.stream, fault), "fault");
  expect_status(fault.status, FL_INDEX_OUT_OF_RANGE, "fl_fault.status");
  REQUIRE(fault.tag == 77 || fault.tag == 0, "the fault has tag %llu, its launch 77",
          static_cast<unsigned long long>(fault.tag));
  REQUIRE(memchr(fault.text, 0, sizeof fault.text) && fault.text[0], "the fault has no text");
  drain_faults(session.stream);
  ok(chip().stream.synchronize(session.stream, -1), "synchronize after the fault was taken");
}

KIT_TEST("STR-4", "query is FL_OK when empty, FL_NOT_READY otherwise, and never waits") {
  Session session;
  session.synchronize();
  ok(chip().stream.query(session.stream), "query of an empty stream");
  busy(session, 60);
  double start = now_ms();
  fl_status status = chip().stream.query(session.stream);
  double took = now_ms() - start;
  REQUIRE(status == FL_OK || status == FL_NOT_READY, "query gave %s", status_name(status));
  REQUIRE(took < 30, "query took %.1f ms behind work of 60 ms", took);
  session.synchronize();
  ok(chip().stream.query(session.stream), "query after synchronize");
  cause_fault(session, 1);
  chip().stream.synchronize(session.stream, -1);
  expect_status(chip().stream.query(session.stream), FL_INDEX_OUT_OF_RANGE, "query with an untaken fault");
  drain_faults(session.stream);
  ok(chip().stream.query(session.stream), "query after the fault was taken");

  // What a thread waits for is not done because it waits.
  std::atomic<bool> enough{false};
  std::thread waiter([&] {
    while (!enough) chip().stream.synchronize(session.stream, -1);
  });
  int wrong = 0;
  Event done;
  for (int round = 0; round < 20; ++round) {
    busy(session, 3);
    chip().stream.event_record(done, session.stream);
    while (chip().stream.query(session.stream) == FL_NOT_READY) {
    }
    wrong += chip().stream.event_query(done) != FL_OK;
  }
  enough = true;
  waiter.join();
  REQUIRE(wrong == 0, "beside a thread that waits, query gave FL_OK before the work was done, %d times of 20",
          wrong);
}

KIT_TEST("STR-5", "waiting for an event that was never recorded is no wait") {
  Session session;
  Event never;
  Tensor x = session.output(FL_F32, {1});
  ok(chip().stream.wait_event(session.stream, never), "wait_event");
  fill(session.launch, x, kOne);
  ok(chip().stream.synchronize(session.stream, 10ll * 1000 * 1000 * 1000), "synchronize within 10 s");
}

KIT_TEST("STR-6", "a stream waits for an event, also one of another device of the chip") {
  auto check = [](int32_t consumer_device) {
    Session producer(0), consumer(consumer_device);
    Tensor x = producer.output(FL_F32, {1});
    Event ready(0);
    // Host memory carries the value, so that the two devices need not reach each other.
    float* shared = nullptr;
    ok(chip().memory.host_alloc(64, reinterpret_cast<void**>(&shared)), "host_alloc");
    *shared = 0;
    Tensor y = consumer.output(FL_F32, {1});
    producer.synchronize();
    consumer.synchronize();
    busy(producer, 50);
    fill(producer.launch, x, kOne);
    const void* from = (*x).data;
    void* to = (*y).data;
    {
      LaunchLock lock;
      ok(chip().memory.copy(&producer.launch, FL_DEVICE_TO_HOST, shared, from, 4), "copy");
      ok(chip().stream.event_record(ready, producer.stream), "event record");
      ok(chip().stream.wait_event(consumer.stream, ready), "wait_event");
      ok(chip().memory.copy(&consumer.launch, FL_HOST_TO_DEVICE, to, shared, 4), "copy");
    }
    ok(chip().stream.synchronize(consumer.stream, -1), "synchronize");
    float seen = peek(y);
    chip().stream.synchronize(producer.stream, -1);
    chip().memory.host_free(shared);
    REQUIRE(seen == 1, "the consumer did not wait: it saw %g", static_cast<double>(seen));
  };
  run_case("the same device", [&] { check(0); });
  int32_t count = 0;
  ok(chip().device.count(&count), "count");
  if (count > 1) run_case("another device", [&] { check(1); });
}

KIT_TEST("STR-7", "fault gives FL_NOT_READY when there is none, and forgets the one it gives") {
  Session session;
  fl_fault fault;
  expect_status(take_fault(session.stream, fault), FL_NOT_READY, "fault of a fresh stream");
  cause_fault(session, 5);
  chip().stream.synchronize(session.stream, -1);
  ok(take_fault(session.stream, fault), "fault");
  expect_status(take_fault(session.stream, fault), FL_NOT_READY, "fault, taken before");
  cause_fault(session, 6);
  chip().stream.synchronize(session.stream, -1);
  ok(take_fault(session.stream, fault), "the next fault");
  REQUIRE(fault.tag == 6 || fault.tag == 0, "the next fault has the tag of launch %llu",
          static_cast<unsigned long long>(fault.tag));
}

KIT_TEST("STR-8", "a fault stays with its stream: others work on, and so does this one") {
  Session bad, good;
  Tensor x = bad.output(FL_F32, {1}), y = good.output(FL_F32, {1});
  bad.synchronize();
  cause_fault(bad, 9);
  fill(bad.launch, x, kOne);
  fill(good.launch, y, kOne);
  good.synchronize();
  REQUIRE(peek(y) == 1, "another stream stopped");
  expect_status(chip().stream.synchronize(bad.stream, -1), FL_INDEX_OUT_OF_RANGE, "synchronize");
  fl_fault fault;
  fl_status other = take_fault(good.stream, fault);
  REQUIRE(other == FL_NOT_READY, "another stream has the fault");
  ok(take_fault(bad.stream, fault), "fault");
  REQUIRE(peek(x) == 1, "what was queued behind the fault did not run");
}

KIT_TEST("EVT-1", "a new event counts as done") {
  Session session;
  Event event;
  ok(chip().stream.event_query(event), "event query");
  ok(chip().stream.event_synchronize(event, 10ll * 1000 * 1000 * 1000), "event synchronize");
}

KIT_TEST("EVT-2", "an event is done when the work queued before its record is") {
  Session session;
  for (bool waits : {true, false}) {
    run_case(waits ? "event_synchronize" : "event_query", [&] {
      Tensor x = session.output(FL_F32, {1});
      session.synchronize();
      Event done;
      for (int round = 1; round <= 3; ++round) {  // recorded again each time
        busy(session, 20);
        fill(session.launch, x, Number::floating(round));
        ok(chip().stream.event_record(done, session.stream), "event record");
        fl_status status = waits ? chip().stream.event_synchronize(done, -1) : FL_NOT_READY;
        if (!waits)
          while ((status = chip().stream.event_query(done)) == FL_NOT_READY) usleep(100);
        ok(status, "the event");
        float seen = peek(x);
        REQUIRE(seen == round, "the event was done, and the fill before it was not: read %g, not %d",
                static_cast<double>(seen), round);
      }
    });
  }
  run_case("event_synchronize with a limit", [&] {
    Event done;
    busy(session, 100);
    ok(chip().stream.event_record(done, session.stream), "event record");
    fl_status status = chip().stream.event_synchronize(done, 1000000);
    REQUIRE(status == FL_TIMEOUT || (status == FL_OK && chip().stream.event_query(done) == FL_OK),
            "with 1 ms: %s", status_name(status));
    session.synchronize();
    ok(chip().stream.event_query(done), "event query after all");
  });
}

KIT_TEST("EVT-3",
         "elapsed is FL_NOT_READY while either event is pending, and then the device's time between them") {
  Session session;
  Event start(0, FL_EVENT_TIMING), stop_event(0, FL_EVENT_TIMING);
  session.synchronize();
  double host_start = now_ms();
  ok(chip().stream.event_record(start, session.stream), "event record");
  busy(session, 60);
  ok(chip().stream.event_record(stop_event, session.stream), "event record");
  double ms = -1;
  fl_status early = chip().stream.event_elapsed(start, stop_event, &ms);
  bool pending = chip().stream.event_query(stop_event) == FL_NOT_READY;
  REQUIRE(!pending || early == FL_NOT_READY, "elapsed gave %s while an event was pending",
          status_name(early));
  session.synchronize();
  double host_time = now_ms() - host_start;
  ok(chip().stream.event_elapsed(start, stop_event, &ms), "elapsed");
  REQUIRE(ms > host_time / 10 && ms < host_time * 1.1 + 1, "elapsed says %.2f ms, the host's clock %.2f ms",
          ms, host_time);
}

KIT_TEST("EVT-4", "elapsed is FL_INVALID when an event has no timing or was never recorded") {
  Session session;
  Event timed(0, FL_EVENT_TIMING), other(0, FL_EVENT_TIMING), plain(0, 0);
  ok(chip().stream.event_record(timed, session.stream), "event record");
  ok(chip().stream.event_record(plain, session.stream), "event record");
  session.synchronize();
  double ms = 0;
  expect_status(chip().stream.event_elapsed(timed, other, &ms), FL_INVALID,
                "elapsed to an event never recorded");
  expect_status(chip().stream.event_elapsed(other, timed, &ms), FL_INVALID,
                "elapsed from an event never recorded");
  expect_status(chip().stream.event_elapsed(timed, plain, &ms), FL_INVALID,
                "elapsed to an event without timing");
  expect_status(chip().stream.event_elapsed(plain, timed, &ms), FL_INVALID,
                "elapsed from an event without timing");
}

}  // namespace

}  // namespace kit
