// ServedModel: the model that a server answers with: file, tokenizer, chat template, and the
// running pipeline.
//
// Immutable once it is made, but for the method and the Service, which are safe to call from any
// thread. Destroying it ends the stages and waits for them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launch/api/method_in_use.hpp"
#include "launch/api/tools/chat_forms.hpp"
#include "launch/load/load_model.hpp"
#include "launch/session/service.hpp"
#include "model/tokenizer/chat_template.hpp"

namespace paceline::serve {

struct ServedModel {
    OpenedModel opened;
    std::optional<ChatTemplate> chat = {};  // nothing: `no_chat` says why
    std::string no_chat = {};
    ChatForms forms = {};   // of the template's answers
    std::string name = {};  // as clients see it
    std::unique_ptr<SharedMethod> method = std::make_unique<SharedMethod>();
    int context = 0;           // tokens of prompt and answer
    int running = 1;           // answers that decode at a time
    int waiting = 0;           // beside those
    std::int64_t created = 0;  // seconds since 1970
    /// Other machines of the pipeline that are not connected, for people. From any thread; empty:
    /// there are none.
    std::function<std::string()> missing_machines = {};
    /// Last: its session borrows the file.
    std::unique_ptr<Service> service = {};

    [[nodiscard]] const Tokenizer& tokenizer() const { return opened.tokenizer; }
    [[nodiscard]] std::string waits_for() const {
        return missing_machines ? missing_machines() : std::string{};
    }
    [[nodiscard]] int vocab_size() const { return opened.file.config().vocab_size; }
};

}  // namespace paceline::serve
