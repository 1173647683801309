// Tiny: a service over a session of two processes on the tiny chat model. What compiles grammars is
// this program too.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launch/load/model_use.hpp"
#include "launch/session/service.hpp"
#include "tests/proc/tiny_session.hpp"

namespace paceline::testing {

inline constexpr std::chrono::milliseconds kLong{60'000};  // only a hang reaches it

struct Tiny {
    explicit Tiny(ServiceOptions options,
                  int context = 64,
                  const GrammarHelperOptions& helpers = {})
        : parts{static_cast<int>(options.running), context},
          tokenizer{tokenizer_of(parts.file).value()},
          service{std::make_unique<Service>(
              std::move(parts.session),
              options,
              std::make_unique<GrammarHelpers>(
                  grammar_vocabulary(tokenizer,
                                     static_cast<std::size_t>(parts.file.config().vocab_size)),
                  helpers))} {}

    [[nodiscard]] ServiceOrder order(std::int32_t tokens,
                                     std::vector<std::string> stops = {}) const {
        ServiceOrder order;
        order.request.text = {5, 6, 7, 8};
        order.request.max_tokens = tokens;
        order.text = AnswerText{tokenizer, 8, stops};
        return order;
    }
    [[nodiscard]] AnswerPiece whole(ServiceOrder order) const {
        const Submitted taken = service->submit(std::move(order));
        REQUIRE(taken.outcome == SubmitOutcome::Accepted);
        return wait(taken);
    }
    /// All of an answer.
    static AnswerPiece wait(const Submitted& taken) {
        AnswerReader reader{taken.stream};
        AnswerPiece all;
        for (;;) {
            REQUIRE(reader.wait(kLong));
            AnswerPiece piece = reader.read();
            all.ids.insert(all.ids.end(), piece.ids.begin(), piece.ids.end());
            all.text += piece.text;
            if (!piece.over) continue;
            all.over = true;
            all.stats = piece.stats;
            all.status = piece.status;
            return all;
        }
    }
    [[nodiscard]] pid_t pid_of(std::size_t stage) const {
        return service->snapshot().stages.at(stage).pid;
    }
    /// The stage's process, as soon as there is one that is not `before`.
    [[nodiscard]] pid_t await_other(std::size_t stage, pid_t before) const {
        for (;;) {
            const pid_t pid = pid_of(stage);
            if (pid > 0 && pid != before) return pid;
            std::this_thread::sleep_for(std::chrono::milliseconds{2});
        }
    }
    /// Until the service is in that state.
    void await(ServiceState state) const {
        while (service->snapshot().state != state)
            std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }

    TinySession parts;
    Tokenizer tokenizer;
    std::unique_ptr<Service> service;
};

}  // namespace paceline::testing
