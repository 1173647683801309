// Service::change(): another pipeline between two answers, beside the old one or after it.
#include <cstdint>
#include <memory>
#include <signal.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "actors/protocol/counters.hpp"
#include "tests/proc/tiny_service.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr const char* kOneSegment = R"(
[pipeline]
name = "other"
[[stage]]
name = "whole"
role = "segment"
layers = "auto"
threads = 1
)";

using Opened = Result<std::unique_ptr<PipelineSession>>;

Opened open_with(Tiny& tiny, const char* config) {
    return PipelineSession::open(
        tiny.parts.file, tiny.parts.options, {parse_pipeline_config(config, "test.toml").value()},
        {.log = &tiny.parts.log, .output = {.table = false, .remarks = false}, .requests = 2});
}

PipelineChange to_one_segment(Tiny& tiny, bool beside) {
    return {.open = [&tiny] { return open_with(tiny, kOneSegment); },
            .again = [&tiny] { return open_with(tiny, kTwoSegments); },
            .beside = beside};
}

Opened refuse() {
    return Error{Errc::OutOfMemory, "no memory for the other one"};
}

std::vector<std::string> processes(const Tiny& tiny) {
    std::vector<std::string> names;
    for (const SessionProcess& process : tiny.service->snapshot().stages)
        names.push_back(process.name);
    return names;
}

const std::vector<std::string> kFrontAndBack{"front", "back"};
const std::vector<std::string> kWhole{"whole"};

}  // namespace

TEST_CASE("orders that come while the pipeline changes wait, within the bounds of the queue") {
    for (const bool beside : {false, true}) {
        Tiny tiny{{.running = 2, .waiting = 2}};
        const AnswerPiece before = tiny.whole(tiny.order(30));
        std::vector<Submitted> taken;
        Submitted cancelled;
        PipelineChange wanted = to_one_segment(tiny, beside);
        wanted.open = [&] {
            CHECK(tiny.service->snapshot().state == ServiceState::Changing);
            cancelled = tiny.service->submit(tiny.order(30));
            for (int i = 0; i < 3; ++i) taken.push_back(tiny.service->submit(tiny.order(30)));
            CHECK(tiny.service->submit(tiny.order(30)).outcome == SubmitOutcome::QueueFull);
            ServiceOrder bad = tiny.order(8);
            bad.request.text.assign(100, 5);
            CHECK(tiny.service->submit(std::move(bad)).outcome == SubmitOutcome::Invalid);
            tiny.service->cancel(cancelled.id);
            // Without a loop nothing else would give its place back.
            if (!beside) taken.push_back(tiny.service->submit(tiny.order(30)));
            CHECK(taken.front().stream->size() == 0);
            return open_with(tiny, kOneSegment);
        };
        CHECK(tiny.service->change(wanted).outcome == ChangeOutcome::Changed);
        REQUIRE(taken.size() == (beside ? 3 : 4));
        for (const Submitted& each : taken) {
            REQUIRE(each.outcome == SubmitOutcome::Accepted);
            const AnswerPiece answer = Tiny::wait(each);
            CHECK(answer.status.ok());
            CHECK(answer.ids == before.ids);
            CHECK(answer.text == before.text);
        }
        CHECK(Tiny::wait(cancelled).ids.empty());
        CHECK(tiny.service->wait_idle(kLong));
        CHECK(processes(tiny) == kWhole);
        CHECK(tiny.service->snapshot().state == ServiceState::Ok);
        // A copy may be a tick old; a count that is too low would wait until the test's limit.
        const std::size_t tokens = (1 + taken.size()) * before.ids.size();
        while (tiny.service->snapshot().tokens < tokens)
            std::this_thread::sleep_for(Service::kTick);
        CHECK(tiny.service->snapshot().tokens == tokens);
        CHECK(tiny.service->snapshot().cancelled == 1);
    }
}

TEST_CASE("an answer of before the change can still be read, from any token on") {
    Tiny tiny{{.running = 2, .waiting = 2}};
    const Submitted kept = tiny.service->submit(tiny.order(30));
    const AnswerPiece whole = Tiny::wait(kept);
    REQUIRE(whole.ids.size() > 4);
    CHECK(tiny.service->change(to_one_segment(tiny, false)).outcome == ChangeOutcome::Changed);
    AnswerReader reader{kept.stream, 3};
    const AnswerPiece rest = reader.read();
    CHECK(rest.over);
    CHECK(rest.ids == std::vector<TokenId>(whole.ids.begin() + 3, whole.ids.end()));
}

TEST_CASE("while an answer is open nothing changes") {
    Tiny tiny{{.running = 2, .waiting = 2}};
    const pid_t stopped = tiny.pid_of(0);
    ::kill(stopped, SIGSTOP);  // it stays open
    const Submitted open = tiny.service->submit(tiny.order(30));
    bool opened = false;
    PipelineChange wanted = to_one_segment(tiny, true);
    wanted.open = [&] {
        opened = true;
        return refuse();
    };
    CHECK(tiny.service->change(wanted).outcome == ChangeOutcome::Busy);
    CHECK(!opened);
    ::kill(stopped, SIGCONT);
    CHECK(Tiny::wait(open).status.ok());
    CHECK(processes(tiny) == kFrontAndBack);
}

TEST_CASE("if the other pipeline cannot be started the old one goes on, with orders that waited") {
    for (const bool beside : {false, true}) {
        Tiny tiny{{.running = 2, .waiting = 2}};
        const AnswerPiece before = tiny.whole(tiny.order(30));
        const pid_t first = tiny.pid_of(0);
        Submitted taken;
        PipelineChange wanted = to_one_segment(tiny, beside);
        wanted.open = [&] {
            taken = tiny.service->submit(tiny.order(30));
            return refuse();
        };
        const ChangeResult result = tiny.service->change(wanted);
        CHECK(result.outcome == ChangeOutcome::Kept);
        REQUIRE(!result.why.ok());
        CHECK(result.why.error().what == "no memory for the other one");
        CHECK(Tiny::wait(taken).ids == before.ids);
        CHECK(processes(tiny) == kFrontAndBack);
        CHECK((tiny.pid_of(0) == first) == beside);
    }
}

TEST_CASE("if neither can be started the orders that waited end with the reason") {
    Tiny tiny{{.running = 2, .waiting = 2}};
    Submitted taken;
    PipelineChange wanted = to_one_segment(tiny, false);
    wanted.open = [&] {
        taken = tiny.service->submit(tiny.order(30));
        return refuse();
    };
    wanted.again = refuse;
    CHECK(tiny.service->change(wanted).outcome == ChangeOutcome::Failed);
    const AnswerPiece answer = Tiny::wait(taken);
    REQUIRE(!answer.status.ok());
    CHECK(answer.status.error().what == "no memory for the other one");
    CHECK(tiny.service->snapshot().state == ServiceState::Failed);
    CHECK(tiny.service->submit(tiny.order(8)).outcome == SubmitOutcome::Failed);
    CHECK(tiny.service->change(to_one_segment(tiny, true)).outcome == ChangeOutcome::Busy);
}

TEST_CASE("counts of the pipelines before go on, and a change may follow another") {
    Tiny tiny{{.running = 2, .waiting = 2}};
    std::uint64_t rows = 0;
    for (int round = 0; round < 3; ++round) {
        CHECK(tiny.whole(tiny.order(8)).status.ok());
        const bool back = round % 2 == 1;
        PipelineChange wanted = to_one_segment(tiny, true);
        if (back) std::swap(wanted.open, wanted.again);
        CHECK(tiny.service->change(wanted).outcome == ChangeOutcome::Changed);
        CHECK(processes(tiny) == (back ? kFrontAndBack : kWhole));
        CHECK(tiny.service->session().usage().counter(counters::kPrefillRows) == 0);
        const std::uint64_t so_far = tiny.service->snapshot().usage.counter(counters::kPrefillRows);
        CHECK(so_far > rows);
        rows = so_far;
    }
    CHECK(tiny.service->snapshot().usage.processes.size() == 3);
}

TEST_CASE("a service that drains while the other pipeline loads keeps its own for what waits") {
    Tiny tiny{{.running = 2, .waiting = 2}};
    const AnswerPiece before = tiny.whole(tiny.order(30));
    Submitted taken;
    PipelineChange wanted = to_one_segment(tiny, true);
    wanted.open = [&] {
        taken = tiny.service->submit(tiny.order(30));
        tiny.service->drain(kLong);
        CHECK(tiny.service->snapshot().state == ServiceState::Draining);
        return open_with(tiny, kOneSegment);
    };
    CHECK(tiny.service->change(wanted).outcome == ChangeOutcome::Kept);
    CHECK(Tiny::wait(taken).ids == before.ids);
    CHECK(processes(tiny) == kFrontAndBack);
}

TEST_CASE("a service that drains while there is no pipeline starts none again") {
    Tiny tiny{{.running = 2, .waiting = 2}};
    Submitted taken;
    PipelineChange wanted = to_one_segment(tiny, false);
    wanted.open = [&] {
        taken = tiny.service->submit(tiny.order(30));
        tiny.service->drain(kLong);
        CHECK(tiny.service->snapshot().state == ServiceState::Draining);
        return refuse();
    };
    wanted.again = [&]() -> Opened {
        FAIL_CHECK("started again");
        return refuse();
    };
    CHECK(tiny.service->change(wanted).outcome == ChangeOutcome::Failed);
    CHECK(!Tiny::wait(taken).status.ok());
}

TEST_CASE(
    "a pipeline that ends while the other one loads is not shown as alive when that one fails") {
    Tiny tiny{{.running = 2, .waiting = 2}};
    PipelineChange wanted = to_one_segment(tiny, true);
    wanted.open = [&] {
        tiny.service->session().end();
        tiny.await(ServiceState::Failed);
        return refuse();
    };
    CHECK(tiny.service->change(wanted).outcome == ChangeOutcome::Failed);
    CHECK(tiny.service->snapshot().state == ServiceState::Failed);
    CHECK(tiny.service->submit(tiny.order(8)).outcome == SubmitOutcome::Failed);
}

TEST_CASE("a pipeline that has failed is replaced, and orders are refused until it is") {
    Tiny tiny{{.running = 2, .waiting = 2}};
    const AnswerPiece before = tiny.whole(tiny.order(30));
    const auto open = [&tiny] { return open_with(tiny, kTwoSegments); };
    CHECK(tiny.service->restart(open).outcome == ChangeOutcome::Busy);
    const Submitted cut = tiny.service->submit(tiny.order(30));
    tiny.service->session().end();
    tiny.await(ServiceState::Failed);
    CHECK(Tiny::wait(cut).over);
    for (int round = 0; round < 2; ++round) {
        const ChangeResult refused = tiny.service->restart(refuse);
        CHECK(refused.outcome == ChangeOutcome::Failed);
        CHECK(refused.why.error().what == "no memory for the other one");
        CHECK(tiny.service->snapshot().state == ServiceState::Failed);
        CHECK(tiny.service->submit(tiny.order(8)).outcome == SubmitOutcome::Failed);
    }
    const auto refused_meanwhile = [&] {
        CHECK(tiny.service->submit(tiny.order(8)).outcome == SubmitOutcome::Failed);
        return open();
    };
    CHECK(tiny.service->restart(refused_meanwhile).outcome == ChangeOutcome::Changed);
    tiny.await(ServiceState::Ok);
    for (int round = 0; round < 3; ++round) {  // more than places, had one been kept
        const AnswerPiece after = tiny.whole(tiny.order(30));
        CHECK(after.status.ok());
        CHECK(after.ids == before.ids);
    }
    CHECK(tiny.service->restart(open).outcome == ChangeOutcome::Busy);
}

TEST_CASE("a pipeline that has failed is not replaced while the service drains") {
    Tiny tiny{{.running = 2, .waiting = 2}};
    tiny.service->session().end();
    tiny.await(ServiceState::Failed);
    const auto drained = [&tiny] {
        tiny.service->drain(kLong);
        return open_with(tiny, kTwoSegments);
    };
    CHECK(tiny.service->restart(drained).outcome == ChangeOutcome::Failed);
    CHECK(tiny.service->snapshot().state == ServiceState::Failed);
    CHECK(tiny.service->restart(drained).outcome == ChangeOutcome::Busy);
}

TEST_CASE("a service that drains does not change") {
    Tiny tiny{{.running = 2, .waiting = 2}};
    tiny.service->drain(kLong);
    CHECK(tiny.service->change(to_one_segment(tiny, true)).outcome == ChangeOutcome::Busy);
}
