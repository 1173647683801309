// TinySession: a session of two processes on the tiny chat model, for tests of what stands on one.
#pragma once

#include <memory>
#include <string>

#include "launch/base/run_log.hpp"
#include "launch/config/pipeline_config.hpp"
#include "launch/session/pipeline_session.hpp"
#include "tests/support/source_tree.hpp"

namespace paceline::testing {

inline constexpr const char* kTwoSegments = R"(
[pipeline]
name = "test"
[[stage]]
name = "front"
role = "segment"
layers = "auto"
threads = 1
[[stage]]
name = "back"
role = "segment"
layers = "auto"
threads = 1
[supervision]
restarts_max = 1000
)";

struct TinySession {
    explicit TinySession(int requests, int context = 64)
        : file{ModelFile::open(source_tree() + "/tests/fixtures/models/tiny-chat.gguf").value()} {
        options.model = file.path();
        options.context = context;
        session =
            PipelineSession::open(
                file, options, {parse_pipeline_config(kTwoSegments, "test.toml").value()},
                {.log = &log, .output = {.table = false, .remarks = false}, .requests = requests})
                .value();
    }

    RunLog log;
    ModelOptions options;
    ModelFile file;
    std::unique_ptr<PipelineSession> session;  // last: it borrows the others
};

}  // namespace paceline::testing
