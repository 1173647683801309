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
    return info_reply({{"model_alias", model.name},
                       {"total_slots", model.running},
                       {"n_ctx", model.context},
                       {"chat_template", tokens.chat_template},
                       {"bos_token", token_text(model, tokens.bos)},
                       {"eos_token", token_text(model, tokens.eos)},
                       {"modalities", {{"vision", false}, {"audio", false}}},
                       {"method", model.method},
                       {"method_reason", model.reason},
                       {"build_info", system_fingerprint()}});
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
