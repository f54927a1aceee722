// lld's driver initialises every target that Debian built LLVM for. Only those of src/base/host_machine.cc are linked in (cmake/llvm.cmake), without
// their disassemblers, which nobody calls; for the others these do nothing.
#define COIL_ABSENT_TARGETS(X) \
  X(AMDGPU)                    \
  X(ARM)                       \
  X(AVR)                       \
  X(BPF) X(Hexagon) X(Lanai) X(LoongArch) X(M68k) X(MSP430) X(Mips) X(NVPTX) X(PowerPC) X(RISCV) X(Sparc) X(SystemZ) X(VE) X(WebAssembly) X(XCore) X(Xtensa)

#define COIL_ABSENT(Name)                    \
  void LLVMInitialize##Name##TargetInfo() {} \
  void LLVMInitialize##Name##Target() {}     \
  void LLVMInitialize##Name##TargetMC() {}   \
  void LLVMInitialize##Name##AsmPrinter() {} \
  void LLVMInitialize##Name##AsmParser() {}  \
  void LLVMInitialize##Name##Disassembler() {}

extern "C" {
COIL_ABSENT_TARGETS(COIL_ABSENT)
void LLVMInitializeX86Disassembler() {}
void LLVMInitializeAArch64Disassembler() {}
}
