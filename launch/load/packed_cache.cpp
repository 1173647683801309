#include "launch/load/packed_cache.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <optional>
#include <span>
#include <system_error>
#include <thread>

#include "launch/load/model_summary.hpp"
#include "model/weights/convert.hpp"
#include "model/weights/model_parts.hpp"
#include "model/weights/packed_copy.hpp"
#include "model/weights/sha256.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVersion = "paceline packed weights 1";  // what is packed, and how
constexpr std::size_t kDigits = 32;                            // of a name: 128 bits
constexpr std::chrono::seconds kClockStep{2};                  // of the coarsest file system

std::string digest(std::string_view text) {
    return sha256_text(std::as_bytes(std::span{text.data(), text.size()}));
}

/// Nothing: the dtype has no copy.
std::optional<StoredType> copy_type(std::string_view dtype) {
    if (dtype == "int8") return StoredType::Q8_0;
    if (dtype == "q4") return StoredType::Q4_1;
    return std::nullopt;
}

/// What a folder's files look like to the file system.
struct Look {
    std::string text;
    bool stable = false;  // a later write would look different
};

std::optional<Look> look_at(const ModelFile& file) {
    Look look{.text = kVersion, .stable = true};
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    for (const MappedFile& shard : file.contents().shards) {
        const Result<FileIdentity> identity = shard.identity();
        if (!identity) return std::nullopt;
        look.text += "\n" + identity.value().text;
        const std::chrono::nanoseconds changed{identity.value().changed_ns};
        look.stable = look.stable && changed + kClockStep < now;
    }
    // The rows' order is config.json's, which is read anew each time.
    for (const TensorView& tensor : file.tensors())
        look.text += fmt::format("\n{} {} {} {} {}", tensor.name, traits(tensor.type).name,
                                 tensor.rows, tensor.cols, tensor.head_rows);
    look.text = digest(look.text);
    return look;
}

/// Reads all bytes of the weights.
std::string hash_content(const ModelFile& file, Show bars) {
    constexpr std::size_t kStep = 16U << 20U;
    ProgressBar bar{"reading weights", bars};
    Sha256 content;
    std::string text = std::string{kVersion} + "\n";
    for (const TensorView& tensor : file.tensors())
        text += fmt::format("{} {} {} {} {}\n", tensor.name, traits(tensor.type).name, tensor.rows,
                            tensor.cols, tensor.head_rows);
    content.add(std::as_bytes(std::span{text}));
    std::uint64_t done = 0;
    for (const MappedFile& shard : file.contents().shards) {
        std::span<const std::byte> left = shard.bytes();
        const std::uint64_t size = left.size();
        content.add(std::as_bytes(std::span{&size, 1}));
        while (!left.empty()) {
            const std::span<const std::byte> part = left.first(std::min(kStep, left.size()));
            content.add(part);
            shard.release(part);
            left = left.subspan(part.size());
            done += part.size();
            bar.update(static_cast<double>(done) / static_cast<double>(file.file_bytes()));
        }
    }
    return content.text();
}

/// The digest that FOLDER.known has for files of this look; empty: none.
std::string known_content(const std::string& known, const Look& look) {
    std::ifstream file{known};
    std::string seen, content;
    file >> seen >> content;
    constexpr std::size_t kSha256Digits = 64;
    const bool whole = content.size() == kSha256Digits &&
                       content.find_first_not_of("0123456789abcdef") == content.npos;
    return whole && seen == look.text ? content : std::string{};
}

void remember(const std::string& known, const Look& look, const std::string& content) {
    Result<UnfinishedFile> file = UnfinishedFile::begin(known, UnfinishedFile::Beside::Wait);
    const std::string text = look.text + " " + content + "\n";
    // Without it the next start hashes again.
    if (file && file.value().append(std::as_bytes(std::span{text}))) (void)file.value().keep();
}

/// What the folder holds, from its record or by reading it. Errors: the files changed meanwhile.
Result<std::string> content_of(const ModelFile& file, const std::string& cache, Show bars) {
    std::error_code ignored;
    const fs::path real = fs::weakly_canonical(file.path(), ignored);
    const std::string known = cache + "/" + digest(real.string()).substr(0, kDigits) + ".known";
    const std::optional<Look> before = look_at(file);
    if (before) {
        std::string content = known_content(known, *before);
        if (!content.empty()) return content;
    }
    std::string content = hash_content(file, bars);
    if (Status s = file.check_unchanged(); !s) return s.error();
    const std::optional<Look> after = look_at(file);
    if (before && after && before->stable && before->text == after->text)
        remember(known, *before, content);
    return content;
}

Status check_room(const std::string& cache, std::uint64_t bytes) {
    std::error_code failed;
    const fs::space_info space = fs::space(cache, failed);
    if (failed || space.available / 2 >= bytes) return {};
    return Error{
        Errc::System,
        fmt::format("{} has {} free; a packed copy of {} is made only where {} are free", cache,
                    human_bytes(space.available), human_bytes(bytes), human_bytes(2 * bytes))};
}

/// Begins the file at `path`; while another process writes it, waits and shows so.
Result<UnfinishedFile> begin_copy(const std::string& path, Show bars) {
    Result<UnfinishedFile> out = UnfinishedFile::begin(path, UnfinishedFile::Beside::Refuse);
    if (out || out.error().code != Errc::Cancelled) return out;
    if (bars == Show::Yes) {
        std::fputs("paceline: another process packs this folder; waiting for it\n", stderr);
    }
    return UnfinishedFile::begin(path, UnfinishedFile::Beside::Wait);
}

/// Makes the copy, unless another process has just done so.
Status make_copy(
    ModelFile& file, const std::string& path, StoredType type, int threads, Show bars) {
    Result<UnfinishedFile> out = begin_copy(path, bars);
    if (!out) return out.error();
    if (MappedFile::exists(path) && use_copy(file, path, type)) return {};
    ProgressBar bar{"converting weights", bars};
    ConvertOptions options;
    options.type = type;
    options.weights_only = true;
    options.threads = threads != 0
                          ? threads
                          : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    options.progress = [&bar](double done) { bar.update(done); };
    const Result<ConvertPlan> plan = plan_conversion(file, options);
    if (!plan) return plan.error();
    const std::uint64_t bytes = plan.value().bytes + kSealBytes;
    if (Status s = check_room(fs::path{path}.parent_path().string(), bytes); !s) return s;
    if (Status s = out.value().reserve(bytes); !s) return s;
    if (Status s = write_converted(file, plan.value(), options, out.value()); !s) return s;
    if (Status s = seal_copy(out.value()); !s) return s;
    if (Status s = out.value().keep(); !s) return s;
    return use_copy(file, path, type);
}

/// `note`: of a copy that was damaged.
Status find_or_make(ModelFile& file,
                    const std::string& cache,
                    StoredType type,
                    int threads,
                    Show bars,
                    std::string& note) {
    if (cache.empty())
        return Error{Errc::System, "neither XDG_CACHE_HOME nor HOME is an absolute path"};
    std::error_code failed;
    fs::create_directories(cache, failed);
    if (failed) return Error{Errc::System, cache + " cannot be made: " + failed.message()};
    UnfinishedFile::remove_abandoned(cache);
    const Result<std::string> content = content_of(file, cache, bars);
    if (!content) return content.error();
    const char* suffix = type == StoredType::Q8_0 ? "q8_0" : "q4_1";
    const std::string path =
        fmt::format("{}/{}-{}.gguf", cache, content.value().substr(0, kDigits), suffix);
    if (MappedFile::exists(path)) {
        const Status used = use_copy(file, path, type);
        if (used) return {};
        note = used.error().what + "; it is replaced by a new one";
    }
    return make_copy(file, path, type, threads, bars);
}

}  // namespace

std::string use_packed_cache(ModelFile& file,
                             const ModelOptions& options,
                             const Environment& environment,
                             Show bars) {
    const std::optional<StoredType> type = copy_type(options.dtype);
    if (!type || options.no_cache || file.lora() != nullptr || !file.is_folder()) return {};
    std::string note;
    const std::string& own = environment.cache_folder;
    const std::string cache = own.empty() ? own : own + "/packed";
    const Status done = find_or_make(file, cache, *type, options.threads, bars, note);
    if (done) return note;
    return "no packed copy of " + file.path() + " is kept: " + done.error().what;
}

void use_named_copy(ModelFile& file, std::string_view dtype, const std::string& copy) {
    const std::optional<StoredType> type = copy_type(dtype);
    if (!type || copy.empty() || file.lora() != nullptr || !file.is_folder()) return;
    (void)use_copy(file, copy, *type);
}

}  // namespace paceline
