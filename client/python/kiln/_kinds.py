"""Types of tensors: how the extension reads one, makes outputs like it, and finds its stream.

The extension asks describe() once for each type.  To support a library, or to take part in its
calls (autograd, tracing), register a function that describes its types:

    def of_mine(type):                  # None: not mine
        return {
            "read": "exchange",         # or "attributes", "array", "dlpack": see src/kind.h
            "empty_like": empty_like,   # empty_like(like) has its shape and dtype, contiguous
            "pattern": pattern,         # pattern(like, shape, dtype): a tensor that empty_like()
                                        # makes any other output of, or None; it is kept
            "new_empty": True,          # like.new_empty(shape) makes an output of like's dtype
            "empty": empty,             # empty(like, shape, dtype): any other output
            "packed": packed,           # packed(tensor): a copy of elements that lie side by side
            "written": written,         # written(tensor): a call has written it, and did not make it
            "stream": stream,           # stream(device): the address of the current CUDA stream
            "when": "grad",             # "never", "grad": an input requires it, "always"
            "redirect": redirect,       # redirect(name, args, named) makes the result then; or a
                                        # dictionary of function(*args, **named) by the operators'
                                        # names
            "records": records,         # records() is false while no call is recorded
            "dispatch": dispatch,       # the same, for a tensor that has no memory, and where
            "asks": (asks,),            # one of these is true, or this attribute not below 0, and
            "level": (object, "name"),  # for a first tensor of f16 or bf16 where asks_half() is
            "asks_half": asks_half,
        }
    kiln._kinds.register("mine", of_mine)
"""
import sys

from ._errors import NotSupported, WrongType, refusal

_registered = {}


def register(name, function):
    """Puts a function in the place of the one that has the name; it is asked before those here."""
    from . import _kiln

    _registered[name] = function
    _kiln.forget_kinds()


def describe(type):
    """What the extension is to know of a type of tensors."""
    for function in [*_registered.values(), _torch, _numpy, _cupy, _dlpack]:
        description = function(type)
        if description is not None:
            return description
    raise WrongType(f"is of type {type.__module__}.{type.__qualname__}, which is no tensor: Kiln takes "
                    "tensors of torch, NumPy, CuPy, and of what has __dlpack__")


def cast(function, tensor, dtype):
    """The tensor with elements of the dtype; function: who asks for it."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        if not isinstance(dtype, torch.dtype):
            dtype = getattr(torch, TORCH[type_word(function, "dtype", dtype)])
        return tensor.to(dtype)
    if not hasattr(tensor, "astype"):
        raise NotSupported(f"{function}(): dtype is for tensors of torch, NumPy and CuPy; cast input "
                           "before the call")
    try:
        return tensor.astype(dtype, copy=False)
    except TypeError:
        return tensor.astype(numpy_type(function, dtype), copy=False)


def type_word(function, name, value):
    """Kiln's word for an element type: that itself, torch's or NumPy's, or a dtype of either."""
    text = value
    if not isinstance(value, str):  # numpy.dtype, a type of NumPy or ml_dtypes, torch.dtype
        text = getattr(value, "name", None) or getattr(value, "__name__", None) or str(value)
    word = _WORDS.get(str(text).removeprefix("torch."))
    if word is None:
        raise refusal(function, name, value, "an element type, such as 'f16', 'float16', "
                      "torch.float16 or numpy.float16")
    return word


def numpy_type(function, dtype):
    """An element type, of which NumPy itself knows nothing by this name, as NumPy has it."""
    word = type_word(function, "dtype", dtype)
    if word not in _ML_DTYPES:
        return _NUMPY[word]
    try:
        import ml_dtypes
    except ImportError:
        raise NotSupported(f"{function}(): dtype is {word}, which NumPy does not have: install "
                           "ml_dtypes") from None
    return getattr(ml_dtypes, _ML_DTYPES[word])


def _is_of(type, module):
    return any((base.__module__ or "").split(".")[0] == module for base in type.__mro__)


def _torch(type):
    torch = sys.modules.get("torch")
    if torch is None or not issubclass(type, getattr(torch, "Tensor", ())):
        return None

    # The gradients and torch.ops.kiln are loaded by the first call that needs them.
    def redirect(name, args, named):
        from . import torch as integration

        return integration.redirect(name, args, named)

    def dispatch(name, args, named):
        from . import torch as integration

        return integration.dispatch(name, args, named)

    return dict(of_torch(type), redirect=redirect, dispatch=dispatch)


TORCH = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8",
         "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32",
         "i64": "int64", "u64": "uint64", "bool": "bool", "c64": "complex64", "c128": "complex128",
         "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
_WORDS = {**{name: word for word, name in TORCH.items()}, **{word: word for word in TORCH}}


def of_torch(type):
    """How tensors of torch are read and made, and when a call of them is not Kiln's alone."""
    torch = sys.modules["torch"]

    def empty(like, shape, dtype):
        return like.new_empty(shape, dtype=getattr(torch, TORCH[dtype]))

    def pattern(like, shape, dtype):
        # empty_like() of one element that is expanded is contiguous, and cheaper than new_empty().
        # Without elements, or expanded to one, its strides would not be those of a new tensor.
        if 0 in shape:
            return None
        lone = all(size == 1 for size in shape)
        return empty(like, shape if lone else (), dtype).expand(shape)

    increment = torch._C._increment_version
    try:
        increment(())
    except TypeError:  # an older one takes one tensor
        def increment(tensors):
            torch._C._increment_version(tensors[0])

    def written(tensor):
        # Autograd refuses to use what it kept of a tensor that was written since.
        if not tensor.is_inference():
            increment((tensor,))

    # A mode, torch.jit.trace() or forward differentiation must see the call.
    asks = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state
    level = torch.autograd.forward_ad, "_current_level"
    dispatches = type.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
    exchange = hasattr(type, "__dlpack_c_exchange_api__")
    return {"read": "exchange" if exchange else "attributes", "new_empty": True,
            "empty_like": torch.empty_like, "empty": empty, "pattern": pattern, "written": written,
            "packed": torch.Tensor.contiguous,
            "stream": torch._C._cuda_getCurrentRawStream if torch.cuda.is_available() else None,
            "when": "always" if dispatches else "grad",
            "records": torch.is_grad_enabled,
            "asks": asks, "level": level, "asks_half": torch.is_autocast_enabled,
            "negated": torch.Tensor.is_neg, "conjugated": torch.Tensor.is_conj}


_NUMPY = {"f16": "f2", "f32": "f4", "f64": "f8", "i8": "i1", "u8": "u1", "i16": "i2", "u16": "u2",
          "i32": "i4", "u32": "u4", "i64": "i8", "u64": "u8", "bool": "?", "c64": "c8",
          "c128": "c16"}
_ML_DTYPES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}


def _numpy(type):
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(type, "__array_interface__") or _is_of(type, "torch"):
        return None

    def empty(like, shape, dtype):
        if dtype not in _ML_DTYPES:
            return numpy.empty(shape, _NUMPY[dtype])
        try:
            import ml_dtypes
        except ImportError:
            raise NotSupported(f"the result is {dtype}, which NumPy does not have: install "
                               "ml_dtypes") from None
        return numpy.empty(shape, getattr(ml_dtypes, _ML_DTYPES[dtype]))

    return {"read": "array", "empty": empty, "packed": numpy.ascontiguousarray}


def _cupy(type):
    cupy = sys.modules.get("cupy")
    if cupy is None or not issubclass(type, cupy.ndarray):
        return None

    def empty(like, shape, dtype):
        if dtype in _ML_DTYPES:
            raise NotSupported(f"the result is {dtype}, which CuPy does not have: pass a tensor of "
                               "torch")
        with like.device:
            return cupy.empty(shape, _NUMPY[dtype])

    return {"read": "dlpack", "empty": empty, "packed": cupy.ascontiguousarray,
            "stream": lambda device: cupy.cuda.get_current_stream(device).ptr}


def _dlpack(type):
    return {"read": "dlpack"} if hasattr(type, "__dlpack__") else None
