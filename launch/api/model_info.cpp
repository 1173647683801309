#include "launch/api/model_info.hpp"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "launch/api/prepare_answers.hpp"
#include "launch/base/build_info.hpp"
#include "launch/base/json_text.hpp"

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

Reply info_reply(const Json& body) {
    return {.body = json_text(body) + "\n"};
}

Json entry_of(const ServedModel& model) {
    return {{"id", model.name},
            {"object", "model"},
            {"created", model.created},
            {"owned_by", "paceline"},
            {"root", model.name},
            {"parent", nullptr},
            {"max_model_len", model.context}};
}

std::string token_text(const ServedModel& model, std::optional<TokenId> token) {
    if (!token || *token < 0 || *token >= model.vocab_size()) return {};
    return std::string{model.tokenizer().bytes_of(*token)};
}

}  // namespace

Reply models_reply(const ServedModel& model) {
    return info_reply({{"object", "list"}, {"data", Json::array({entry_of(model)})}});
}

Reply model_reply(const std::string& id, const ServedModel& model) {
    if (const std::optional<ApiError> other = wrong_model(id, model)) return reply_of(*other);
    return info_reply(entry_of(model));
}

Reply props_reply(const ServedModel& model) {
    const TokenizerData& tokens = model.opened.file.tokenizer();
    const MethodInUse method = model.method->get();
    return info_reply({{"model_alias", model.name},
                       {"total_slots", model.running},
                       {"n_ctx", model.context},
                       {"default_generation_settings", {{"n_ctx", model.context}}},
                       {"chat_template", tokens.chat_template},
                       {"tool_format", model.chat ? syntax_of(model.forms.tools).name : "none"},
                       {"shows_tools", model.chat && model.forms.shows_tools},
                       {"reasoning_format", model.forms.thoughts ? "think" : "none"},
                       {"bos_token", token_text(model, tokens.bos)},
                       {"eos_token", token_text(model, tokens.eos)},
                       {"modalities", {{"vision", false}, {"audio", false}}},
                       {"method", method.name},
                       {"method_reason", method.reason},
                       {"method_changes", method.changes},
                       {"build_info", system_fingerprint()}});
}

Reply slots_reply(const ServedModel& model, std::size_t running, bool fail_if_busy) {
    if (fail_if_busy && running >= static_cast<std::size_t>(model.running))
        return reply_of({.status = 503,
                         .message = "no slot available",
                         .code = "no_slot_available",
                         .retry_after_s = 1});
    const int gamma = model.method->get().gamma;
    Json slots = Json::array();
    for (int i = 0; i < model.running; ++i) {
        slots.push_back({{"id", i},
                         {"n_ctx", model.context},
                         {"speculative", gamma > 0},
                         {"is_processing", static_cast<std::size_t>(i) < running}});
    }
    return info_reply(slots);
}

Reply tokenizer_info_reply(const ServedModel& model) {
    const TokenizerData& tokens = model.opened.file.tokenizer();
    const auto text_or_null = [&](std::optional<TokenId> token) {
        return token ? Json(token_text(model, token)) : Json();
    };
    return info_reply({{"tokenizer_class", "paceline"},
                       {"bos_token", text_or_null(tokens.bos)},
                       {"eos_token", text_or_null(tokens.eos)},
                       {"bos_token_id", tokens.bos ? Json(*tokens.bos) : Json()},
                       {"eos_token_id", tokens.eos ? Json(*tokens.eos) : Json()},
                       {"pad_token", nullptr},
                       {"unk_token", nullptr},
                       {"add_bos_token", model.tokenizer().prompt_bos().has_value()},
                       {"chat_template", tokens.chat_template},
                       {"vocab_size", model.vocab_size()},
                       {"model_max_length", model.context}});
}

Reply version_reply() {
    const BuildInfo& build = build_info();
    return info_reply({{"version", build.version}, {"commit", build.commit}});
}

std::string model_name(const std::string& alias, const std::string& path) {
    if (!alias.empty()) return alias;
    const std::filesystem::path file{path};
    const bool folder = file.filename().empty();  // "model/"
    const std::filesystem::path last = folder ? file.parent_path().filename() : file.filename();
    return last.extension() == ".gguf" ? last.stem().string() : last.string();
}

std::string system_fingerprint() {
    const BuildInfo& build = build_info();
    return std::string{"paceline-"} + build.version + "-" + build.commit;
}

}  // namespace paceline::serve
