#include "launch/api/tools/chat_body.hpp"

#include <utility>

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

void append_line(json& text, const std::string& more) {
    auto& own = text.get_ref<std::string&>();
    if (!own.empty() && !more.empty()) own += "\n\n";
    own += more;
}

}  // namespace

void ChatBody::add_system(const std::string& text) {
    if (messages_.empty()) {
        messages_.push_back({{"role", "system"}, {"content", text}});
    } else if (messages_.size() == 1 && messages_.front()["role"] == "system") {
        append_line(messages_.front()["content"], text);
    } else {
        add_user(text);
    }
}

void ChatBody::add_user(const std::string& text) {
    if (!messages_.empty() && messages_.back()["role"] == "user") {
        append_line(messages_.back()["content"], text);
    } else {
        messages_.push_back({{"role", "user"}, {"content", text}});
    }
}

/// The message of the turn.
json& ChatBody::assistant() {
    if (messages_.empty() || messages_.back()["role"] != "assistant")
        messages_.push_back({{"role", "assistant"}, {"content", ""}});
    return messages_.back();
}

void ChatBody::add_thought(const std::string& text) {
    json& message = assistant();
    if (!message.contains("reasoning_content")) message["reasoning_content"] = "";
    append_line(message["reasoning_content"], text);
}

void ChatBody::add_text(const std::string& text) {
    append_line(assistant()["content"], text);
}

void ChatBody::add_call(const std::string& id, const std::string& name, Json arguments) {
    called_[id] = name;
    assistant()["tool_calls"].push_back(
        {{"id", id},
         {"type", "function"},
         {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
}

void ChatBody::add_result(const std::string& call, const std::string& text) {
    json message{{"role", "tool"}, {"tool_call_id", call}, {"content", text}};
    // Some templates look here for the name of the function.
    if (const auto made = called_.find(call); made != called_.end()) message["name"] = made->second;
    messages_.push_back(std::move(message));
}

json ChatBody::messages() const {
    const bool has_turn =
        messages_.size() > 1 || (!messages_.empty() && messages_.front()["role"] != "system");
    if (has_turn) return messages_;
    json probed = messages_;
    probed.push_back({{"role", "user"}, {"content", ""}});
    return probed;
}

}  // namespace paceline::serve
