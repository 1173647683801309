// nccl.hpp in a program that was built without NCCL's header.
#include "ipc/device/nccl.hpp"

namespace paceline {

Result<std::shared_ptr<Nccl>> open_nccl(const std::string& named) {
    static_cast<void>(named);
    return Error{Errc::Unsupported, "this program was built without NCCL"};
}

}  // namespace paceline
