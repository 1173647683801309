#include "launch/cli/datastore.hpp"

#include <cstdint>
#include <divsufsort.h>
#include <fmt/core.h>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "actors/decoding/guesses/datastore.hpp"
#include "launch/base/exit_codes.hpp"
#include "launch/base/report.hpp"
#include "launch/base/text_input.hpp"
#include "launch/base/text_output.hpp"
#include "launch/load/json_lines.hpp"
#include "launch/load/model_use.hpp"
#include "model/weights/unfinished_file.hpp"

namespace paceline {
namespace {

constexpr const char* kDatastoreCommand = "datastore";
constexpr std::size_t kTokenBytes = 3;  // in the order that is sorted
constexpr std::size_t kTokensMax = std::numeric_limits<std::int32_t>::max() / kTokenBytes;

// Of a token's bytes this is the separator's value: a vocabulary must end before it.
constexpr std::size_t kVocabularyEnd = (1U << (8 * kTokenBytes)) - 1;

using Json = nlohmann::ordered_json;  // a question stands before its answer as it did in the line

/// The strings of a JSON value, one after the other: of {"text": ...}, {"messages": [{"role": ...,
/// "content": ...}]} or anything else; roles are no text.
void add_strings(const Json& value, std::string& text) {
    if (value.is_string()) {
        if (!text.empty()) text += '\n';
        text += value.get_ref<const std::string&>();
    }
    if (!value.is_structured()) return;
    for (const auto& [key, each] : value.items()) {
        const bool named = value.is_object() && (key == "role" || key == "id");
        if (!named) add_strings(each, text);
    }
}

/// One text, or of JSON lines one of each.
Result<std::vector<std::string>> texts_of(const std::string& file) {
    Result<std::string> read = read_file_or_stdin(file, kRecordBytesMax);
    if (!read) return read.error();
    if (!file.ends_with(".jsonl")) return std::vector{std::move(read).value()};
    std::vector<std::string> texts;
    const auto add = [&texts](const Json& value, std::size_t /*line*/) -> Status {
        add_strings(value, texts.emplace_back());
        return {};
    };
    if (Status s = read_json_lines(read.value(), file, add); !s) return s.error();
    return texts;
}

/// Of all suffixes, by libdivsufsort: it sorts bytes, so a token is written as three of them, and
/// suffixes that begin inside of a token are left out.
Result<std::vector<std::uint32_t>> sorted_suffixes(const std::vector<TokenId>& tokens) {
    std::vector<std::uint8_t> bytes;
    bytes.reserve(tokens.size() * kTokenBytes);
    for (const TokenId token : tokens) {
        const auto value = static_cast<std::uint32_t>(token);
        for (const unsigned shift : {16U, 8U, 0U})
            bytes.push_back(static_cast<std::uint8_t>(value >> shift));
    }
    std::vector<saidx_t> order(bytes.size());
    if (divsufsort(bytes.data(), order.data(), static_cast<saidx_t>(bytes.size())) != 0)
        return Error{Errc::System, fmt::format("no memory to sort {} tokens", tokens.size())};
    std::vector<std::uint32_t> suffixes;
    suffixes.reserve(tokens.size());
    for (const saidx_t at : order) {
        const auto place = static_cast<std::uint32_t>(at);
        if (place % kTokenBytes == 0) suffixes.push_back(place / kTokenBytes);
    }
    return suffixes;
}

struct StoreTokens {
    std::vector<TokenId> tokens = {};  // of all texts, a separator after each
    std::size_t texts = 0;
};

Result<StoreTokens> tokens_of(const DatastoreOptions& options, const Tokenizer& tokenizer) {
    const SpecialTokens special = options.plain_text ? SpecialTokens::AsText : SpecialTokens::Parse;
    StoreTokens store;
    for (const std::string& name : options.files) {
        const Result<std::vector<std::string>> texts = texts_of(name);
        if (!texts) return texts.error();
        for (const std::string& text : texts.value()) {
            const std::vector<TokenId> ids = tokenizer.encode(text, special);
            store.tokens.insert(store.tokens.end(), ids.begin(), ids.end());
            store.tokens.push_back(kStoreSeparator);
            ++store.texts;
        }
        if (store.tokens.size() > kTokensMax) {
            return Error{Errc::BadArgument,
                         fmt::format("{}: more than {} tokens with this file", name, kTokensMax)};
        }
    }
    if (store.tokens.size() == store.texts)
        return Error{Errc::BadArgument, "TEXT: the files have no text"};
    return store;
}

/// A server may have the old file mapped: it keeps that one, the name is the new one's.
Status write_store(const DatastoreOptions& options, const Environment& environment) {
    Result<std::string> path = choose_model(options.model, environment);
    if (!path) return path.error();
    const Result<ModelFile> file = ModelFile::open(path.value());
    if (!file) return file.error();
    const std::size_t vocabulary = file.value().tokenizer().tokens.size();
    if (vocabulary > kVocabularyEnd) {
        return Error{Errc::BadArgument,
                     fmt::format("{}: a vocabulary of {} tokens, a datastore knows at most {}",
                                 path.value(), vocabulary, kVocabularyEnd)};
    }
    const Result<Tokenizer> tokenizer = tokenizer_of(file.value());
    if (!tokenizer) return tokenizer.error();
    // Before the texts are read, so that a path that cannot be written is known at once.
    Result<UnfinishedFile> output =
        UnfinishedFile::begin(options.output, UnfinishedFile::Beside::Refuse);
    if (!output) return Error{output.error().code, "-o: " + output.error().what};
    const Result<StoreTokens> store = tokens_of(options, tokenizer.value());
    if (!store) return store.error();
    const std::vector<TokenId>& tokens = store.value().tokens;
    const Result<std::vector<std::uint32_t>> suffixes = sorted_suffixes(tokens);
    if (!suffixes) return suffixes.error();
    const std::string bytes = datastore_bytes(tokens, suffixes.value(), file.value().tokenizer());
    if (Status s = output.value().append(std::as_bytes(std::span{bytes})); !s.ok()) return s;
    if (Status s = output.value().sync(); !s.ok()) return s;
    if (Status s = output.value().keep(); !s.ok()) return s;
    return write_stdout(fmt::format("{}: {} texts, {} tokens, {:.1f} MB\n", options.output,
                                    store.value().texts, tokens.size() - store.value().texts,
                                    static_cast<double>(bytes.size()) / 1e6));
}

}  // namespace

Command add_datastore(Command& app, DatastoreOptions& options) {
    Command command =
        app.add_command(kDatastoreCommand, "Texts to a store that a draft looks up (REST)");
    add_model_file_option(command, options.model);
    refuse_random_option(command);
    command
        .add_option("files", options.files,
                    "texts; of *.jsonl each line's strings are one; - is standard input")
        .required();
    command.add_option("-o,--output", options.output, "the file to write").required();
    command.add_flag("--plain", options.plain_text,
                     "text such as <|im_start|> is only its characters, not the control token");
    command.footer(
        "Example:\n  paceline datastore answers.jsonl -o answers.store\n"
        "A configuration uses it:  extends = \"rest\"  and  [draft] datastore = \"answers.store\"");
    return command;
}

int run_datastore(const DatastoreOptions& options, const Environment& environment) {
    const Status written = write_store(options, environment);
    return written.ok() ? kExitOk : report_failure(kDatastoreCommand, written.error());
}

}  // namespace paceline
