"""What a jitted function reaches by names is as it is there at every call, as in NumPy."""

import collections
import enum
import functools
import itertools
import random
import types

import numpy as np
import pytest

import tiledarray as ta
from tiledarray.transforms import found


@pytest.fixture(params=[1, 16], ids=["written", "walked"], autouse=True)
def reads(request, monkeypatch):
    """What was found is compared by text of its own from the second call on, or by a walk."""
    monkeypatch.setattr(found.Watch, "WRITTEN_AFTER", request.param)


MODEL = """
class M:
    c = 1.0
    def __init__(self):
        self.k, self.cfg, self.flag, self.fn = 2.0, {"lr": 1.0}, True, lambda x: x * 2
    def helper(self, x):
        return x * self.k
    def rate(self):
        return self.cfg["lr"]
m = M()
"""

# Programs: `f` is called three times before and after each `change(n)`, n = 1, 2, 3.
PROGRAMS = {
    "helper method": MODEL + r"""
f=jit(lambda x:m.helper(x)*m.rate())
def change(n):
    if n==1: m.k=n*3.0
    else: m.cfg['lr']=n*2.0
""",
    "class attribute and a number in a dict": MODEL + r"""
f=jit(lambda x:x*m.c+m.cfg['lr'])
def change(n):
    if n==1: M.c=4.0
    else: m.cfg={'lr':n*2.0}
""",
    "containers that grow": r"""
ws=[np.ones(2)]; nums=[1,2]; d={'a':1.0}; dq=collections.deque([1,2],maxlen=2); st={1}
f=jit(lambda x:sum(v*x for v in ws)+sum(nums)*len(nums)+d.get('b',4.0)+sum(dq)+sum(st))
def change(n):
    if n==1: ws.append(np.full(2,10.)); nums.append(10)
    if n==2: d['b']=1.0; dq.append(7)
    if n==3: st.add(5); ws.pop(0)
""",
    "none that becomes a number, then an array": r"""
bias=None
f=jit(lambda x:x if bias is None else x+bias)
def change(n):
    global bias
    bias=[2.0,np.full(2,3.0),None][n-1]
""",
    "helper defined anew": r"""
def h(x): return x*2
f=jit(lambda x:h(x))
def change(n):
    exec(f"def h(x): return x*{n*10}",globals())
""",
    "net of objects": r"""
class Layer:
    def __init__(s,w): s.w=w
    def __call__(s,x): return np.tanh(x@s.w)
class Net:
    def __init__(s): s.layers=[Layer(np.eye(2)),Layer(np.eye(2)*2)]
    def forward(s,x):
        for l in s.layers: x=l(x)
        return x
n=Net()
f=jit(lambda x:n.forward(x))
def change(k):
    if k==1: n.layers[0].w=np.eye(2)*3
    if k==2: n.layers[1].w*=2
    if k==3: n.layers.append(Layer(np.ones((2,2))))
""",
    "partial": r"""
def h(x,k): return x*k
p=functools.partial(h,k=2.0)
f=jit(lambda x:p(x))
def change(n):
    global p
    p=functools.partial(h,k=2.0+n)
""",
    "partial of method": MODEL + r"""
p=functools.partial(m.helper)
f=jit(lambda x:p(x))
def change(n): m.k=n*3.0
""",
    "jit(partial)": MODEL + r"""
def h(m,x): return x*m.k
f=jit(functools.partial(h,m))
def change(n): m.k=n*3.0
""",
    "fs[0]": r"""
fs=[lambda x:x*2]
f=jit(lambda x:fs[0](x))
def change(n):
    fs[0]=eval(f'lambda x:x*{n+5}')
""",
    "attr callable": MODEL + r"""
f=jit(lambda x:m.fn(x))
def change(n): m.fn=eval(f'lambda x:x*{n+5}')
""",
    "flag": MODEL + r"""
f=jit(lambda x:x if m.flag else -x)
def change(n): m.flag=not m.flag
""",
    "hasattr": MODEL + r"""
f=jit(lambda x:x+m.b if hasattr(m,'b') else -x)
def change(n):
    if n==1: m.b=3.0
    elif n==2: del m.b
""",
    "getattr default": MODEL + r"""
f=jit(lambda x:x+getattr(m,'zz',0.0))
def change(n): m.zz=n*1.0
""",
    "getattr computed": MODEL + r"""
m.w0=1.0;m.w1=2.0
f=jit(lambda x:sum(x*getattr(m,f"w{i}") for i in range(2)))
def change(n): m.w1=n*7.0
""",
    "vars": MODEL + r"""
f=jit(lambda x:x*sum(v for v in vars(m).values() if isinstance(v,float)))
def change(n): m.k=n*7.0
""",
    "defaults": r"""
def h(x,k=2.0): return x*k
f=jit(lambda x:h(x))
def change(n): h.__defaults__=(n*4.0,)
""",
    "kwdefaults": r"""
def h(x,*,k=2.0): return x*k
f=jit(lambda x:h(x))
def change(n): h.__kwdefaults__={'k':n*4.0}
""",
    "global in method": r"""
G=1.0
class A:
    def run(s,x): return x*G
a=A()
f=jit(lambda x:a.run(x))
def change(n):
    global G
    G=n*2.0
""",
    "class body made in function": r"""
G=1.0
class A:
    def __init__(s,k): s.k=k*G
    def run(s,x): return x*s.k
f=jit(lambda x:A(2.0).run(x))
def change(n):
    global G
    G=n*2.0
""",
    "method redefined": MODEL + r"""
f=jit(lambda x:m.helper(x))
def change(n): M.helper=eval(f'lambda s,x:x*{n}')
""",
    "inherited class attr": MODEL + r"""
class B(M): pass
b=B()
f=jit(lambda x:x*b.c)
def change(n):
    if n==1: M.c=5.0
    if n==2: B.c=6.0
    if n==3: b.c=7.0
""",
    "slots": r"""
class S:
    __slots__=('k','__p')
    def __init__(s): s.k=1.0; s.__p=2.0
    def run(s,x): return x*s.k*s.__p
    def set(s,v): s.__p=v
s=S()
f=jit(lambda x:s.run(x))
def change(n):
    if n==1: s.k=3.0
    else: s.set(n*2.0)
""",
    "namespace": r"""
ns=types.SimpleNamespace(lr=1.0)
f=jit(lambda x:x*ns.lr)
def change(n): ns.lr=n*3.0
""",
    "namedtuple": r"""
C=collections.namedtuple('C','lr n')
c=C(1.0,2)
f=jit(lambda x:x*c.lr)
def change(n):
    global c
    c=c._replace(lr=n*3.0)
""",
    "enum": r"""
class E(enum.Enum):
    A=1; B=2
e=E.A
f=jit(lambda x:x*(2 if e is E.A else 3))
def change(n):
    global e
    e=E.B if e is E.A else E.A
""",
    "module attr": r"""
import sys
mod=types.ModuleType('umod'); mod.rate=1.0; sys.modules['umod']=mod
exec("def h(x): return x*rate", mod.__dict__)
def g(x):
    import umod
    return umod.h(x)
f=jit(g)
def change(n): mod.rate=n*3.0
""",
    "nested closure": r"""
def make():
    k=1.0
    def inner(x): return x*k
    def set(v):
        nonlocal k
        k=v
    return inner,set
inner,set_=make()
f=jit(lambda x:inner(x))
def change(n): set_(n*3.0)
""",
    "array none": r"""
w=np.ones(2)
f=jit(lambda x:x if w is None else x*w)
def change(n):
    global w
    w=None if n%2 else np.ones(2)*4
""",
    "dict of arrays rebuilt": r"""
p={'w':np.ones(2),'b':np.ones(2)}
f=jit(lambda x:x*p['w']+p['b'])
def change(n):
    global p
    p={k:v*2+n for k,v in p.items()}
""",
    "in dict": r"""
d={}
f=jit(lambda x:x*2 if 'a' in d else x)
def change(n):
    if n==1: d['a']=0
    elif n==2: del d['a']
    else: d['a']=1
""",
    "list swap same arrays": r"""
a=np.ones(2);b=np.ones(2)*2
ws=[a,b]
f=jit(lambda x:x*ws[0]-ws[1])
def change(n): ws.reverse()
""",
    "two names same list then not": r"""
l=[1.0]; l2=l
f=jit(lambda x:x*l[0]+l2[0])
def change(n):
    global l2
    l2=[n*4.0]
""",
    "np array in place": r"""
w=numpy.ones(2); holder={'w':numpy.ones(2)}
class A: pass
a=A(); a.w=numpy.ones(3)
f=jit(lambda x:x*w+holder['w']+float(a.w[1]))
def change(n):
    global w
    if n==1: w[:]=4
    if n==2: holder['w'][0]=9
    if n==3: w=numpy.ones(2)*3; a.w[1]=5
""",
    "deep": MODEL + r"""
class D:
    def __init__(s,d):
        s.w=np.ones(2)*1.0; s.k=1.0
        s.inner=D(d-1) if d else None
    def __call__(s,x):
        x=x*s.w+s.k
        return x if s.inner is None else s.inner(x)
d=D(6)
f=jit(lambda x:d(x))
def change(n):
    e=d
    for _ in range(n+2): e=e.inner
    e.k=n*2.0; e.w=np.ones(2)*(n+1)
""",
    "operators dunder": r"""
class V:
    def __init__(s): s.k=1.0
    def __rmul__(s,o): return o*s.k
    def __mul__(s,o): return o*s.k
    def __getitem__(s,i): return s.k+i
    def __len__(s): return int(s.k)
v=V()
f=jit(lambda x:x*v[1]*len(v))
def change(n): v.k=n*3.0
""",
    "wrapped": r"""
G=1.0
@functools.cached_property
def _p(s): return 3
@functools.wraps(len)
def h(x): return x*G
f=jit(lambda x:h(x))
def change(n):
    global G
    G=n*2.0
""",
    "decorator": r"""
G=1.0
def deco(fn):
    @functools.wraps(fn)
    def w(*a): return fn(*a)*G
    return w
K=1.0
@deco
def h(x): return x*K
f=jit(h)
def change(n):
    global G,K
    if n==1: G=3.0
    if n==2: K=5.0
""",
    "jit inside with number": r"""
K=1.0
@jit
def h(x): return x*K
f=jit(lambda x:h(x)+1)
def change(n):
    global K
    K=n*3.0
""",
    "property array": r"""
class A:
    def __init__(s): s._w=np.ones(2)
    @property
    def w(s): return s._w*2
a=A()
f=jit(lambda x:x*a.w)
def change(n): a._w=np.ones(2)*n
""",
    "cached_property": r"""
class A:
    def __init__(s): s.k=2.0
    @functools.cached_property
    def w(s): return s.k*2
a=A()
f=jit(lambda x:x*a.w)
def change(n):
    a.k=n*1.0
    a.__dict__.pop('w',None)
""",
    "classmethod/static": r"""
class A:
    k=1.0
    @classmethod
    def run(cls,x): return x*cls.k
    @staticmethod
    def st(x): return x*G
G=2.0
f=jit(lambda x:A.run(x)+A.st(x))
def change(n):
    global G
    if n==1: A.k=3.0
    if n==2: G=5.0
""",
    "super": r"""
class A:
    k=1.0
    def run(s,x): return x*s.k
class B(A):
    j=2.0
    def run(s,x): return super().run(x)*s.j
b=B()
f=jit(lambda x:b.run(x))
def change(n):
    if n==1: A.k=3.0
    if n==2: B.j=5.0
""",
    "shadow builtin": r"""
f=jit(lambda x:x*len([1,2]))
def change(n):
    globals()['len']=lambda x:n+7
""",
    "memo dict": r"""
memo={}
K=2
def get(n):
    if n not in memo: memo[n]=n*2.0
    return memo[n]
f=jit(lambda x:x*get(K))
def change(n):
    global K
    K=n
""",
    "lazy attr": r"""
class A:
    def __init__(s): s.k=None
    def get(s):
        if s.k is None: s.k=3.0
        return s.k
a=A()
f=jit(lambda x:x*a.get())
def change(n): a.k=None if n==1 else n*2.0
""",
    "log": r"""
log=[]
class A: pass
a=A(); a.log=[]
f=jit(lambda x:(log.append(1),a.log.append('x'),x*2)[2])
def change(n): pass
""",
    "function attr": r"""
def h(x): return x*h.k
h.k=1.0
f=jit(lambda x:h(x))
def change(n): h.k=n*3.0
""",
    "iterate over map of fns": r"""
layers=tuple(functools.partial(lambda k,x:x*k,k) for k in (1.0,2.0))
def g(x):
    for l in layers: x=l(x)
    return x
f=jit(g)
def change(n):
    global layers
    layers=tuple(functools.partial(lambda k,x:x*k,k) for k in (1.0,2.0+n))
""",
    "str switch": r"""
mode='a'
f=jit(lambda x:x*{'a':1,'b':2}[mode])
def change(n):
    global mode
    mode='b' if mode=='a' else 'a'
""",
    "bytearray": r"""
b=bytearray([1,2])
f=jit(lambda x:x*b[0])
def change(n): b[0]=n+3
""",
    "counter": r"""
c=collections.Counter('aab')
f=jit(lambda x:x*c['a'])
def change(n): c['a']+=1
""",
    "userdict subclass attrs": r"""
class L(list):
    k=1.0
    def __init__(s,v): super().__init__(v); s.j=1.0
    def tot(s): return sum(s)*s.k*s.j
l=L([1.0,2.0])
f=jit(lambda x:x*l.tot())
def change(n):
    if n==1: l.append(3.0)
    if n==2: L.k=4.0
    if n==3: l.j=3.0
""",
    "init via __getattr__": r"""
class P:
    def __init__(s): s.d={'k':1.0}
    def __getattr__(s,n):
        if n=='d': raise AttributeError(n)
        return s.d[n]
p=P()
f=jit(lambda x:x*p.k)
def change(n): p.d['k']=n*5.0
""",
    "userdict": r"""
d=collections.UserDict(a=1.0)
f=jit(lambda x:x*d['a'])
def change(n): d['a']=n*2.0
""",
    "chainmap": r"""
a={'k':1.0}
d=collections.ChainMap({},a)
f=jit(lambda x:x*d['k'])
def change(n): a['k']=n*2.0
""",
    "mappingproxy": r"""
a={'k':1.0}
d=types.MappingProxyType(a)
f=jit(lambda x:x*d['k'])
def change(n): a['k']=n*2.0
""",
    "eq": r"""
class C:
    def __init__(s,k): s.k=k
    def __eq__(s,o): return s.k==o.k
a,b=C(1),C(1)
f=jit(lambda x:x*(2 if a==b else 3))
def change(n): a.k=n
""",
    "dataclass eq": r"""
import dataclasses
@dataclasses.dataclass
class C:
    k:int=1
a,b=C(1),C(1)
f=jit(lambda x:x*(2 if a==b else 3))
def change(n): a.k=n
""",
    "match": r"""
import dataclasses
@dataclasses.dataclass
class C:
    k:int=1
a=C(1)
def g(x):
    match a:
        case C(1): return x
        case C(k): return x*k
f=jit(g)
def change(n): a.k=n+2
""",
    "globals()": r"""
K=1.0
f=jit(lambda x:x*globals()['K'])
def change(n):
    global K
    K=n*3.0
""",
    "partialmethod": r"""
class C:
    k=1.0
    def a(s,x,m): return x*s.k*m
    b=functools.partialmethod(a,m=2.0)
c=C()
f=jit(lambda x:c.b(x))
def change(n): c.k=n*3.0
""",
    "np.vectorize": r"""
K=1.0
v=numpy.vectorize(lambda t:t*K)
f=jit(lambda x:x*float(v(2.0)))
def change(n):
    global K
    K=n*3.0
""",
    "large ndarray": r"""
w=numpy.ones(100000)
f=jit(lambda x:x*float(w[99999])+float(w[0]))
def change(n):
    w[[0,99999][n%2]]=n
""",
    "jit(grad)": r"""
class M: pass
m=M(); m.k=2.0
if np is numpy:
    f=lambda x: x*0+m.k
else:
    f=jit(np.grad(lambda w:(w*m.k).sum()))
def change(n): m.k=n*3.0
""",
    "vmap": r"""
class M: pass
m=M(); m.k=2.0
if np is numpy:
    f=lambda x: x*m.k
else:
    f=jit(np.vmap(lambda w:w*m.k))
def change(n): m.k=n*3.0
""",
    "fori": r"""
class M: pass
m=M(); m.k=2.0
def body(i,u): return u*m.k
if np is numpy:
    f=lambda x: x*m.k*m.k
else:
    f=jit(lambda x: np.fori_loop(2,body,x))
def change(n): m.k=n*3.0
""",
    "inherited net framework": r"""
class Module:
    def __init__(s): s._p={}
    def __setattr__(s,n,v):
        object.__setattr__(s,n,v)
    def __call__(s,*a): return s.forward(*a)
    def parameters(s): return [v for v in s.__dict__.values() if hasattr(v,'shape')]
class Lin(Module):
    def __init__(s,k): super().__init__(); s.w=np.ones(2)*k
    def forward(s,x): return x*s.w
class Seq(Module):
    def __init__(s,*l): super().__init__(); s.l=l; s.scale=1.0
    def forward(s,x):
        for e in s.l: x=e(x)
        return x*s.scale+sum(p.sum() for e in s.l for p in e.parameters())
net=Seq(Lin(1.0),Lin(2.0))
f=jit(net)
def change(n):
    if n==1: net.scale=4.0
    if n==2: net.l[1].w=np.ones(2)*7
    if n==3: net.l=net.l+(Lin(3.0),)
""",
    "generator function helper": r"""
K=[1.0,2.0]
def gen():
    for k in K: yield k
f=jit(lambda x:sum(x*k for k in gen()))
def change(n): K[0]=n*5.0
""",
    "nested class attr via type(self)": r"""
class A:
    k=1.0
    def run(s,x): return x*type(s).k
a=A()
f=jit(lambda x:a.run(x))
def change(n): A.k=n*2.0
""",
    "metaclass/descriptor": r"""
class D:
    def __init__(s): s.v=2.0
    def __get__(s,o,t): return s.v
class A:
    k=D()
a=A()
f=jit(lambda x:x*a.k)
def change(n): A.__dict__['k'].v=n*3.0
""",
    "callable class in dict": r"""
class R:
    def __init__(s,k): s.k=k
    def __call__(s,x): return x*s.k
reg={'a':R(1.0),'b':R(2.0)}
f=jit(lambda x:reg['a'](x)+reg['b'](x))
def change(n): reg['a'].k=n*3.0
""",
    "self rebinding in method arg": r"""
class A:
    def __init__(s,k): s.k=k
    @jit
    def go(s,x): return x*s.k
objs=[A(1.0),A(2.0)]
f=lambda x: objs[0].go(x)+objs[1].go(x)*10
def change(n): objs[n%2].k=n*3.0
""",
    "value-equal arg objects": r"""
class A:
    def __init__(s,i,k): s.i=i; s.k=k
    def __eq__(s,o): return s.i==o.i
    def __hash__(s): return hash(s.i)
g=jit(lambda x,a:x*a.k)
cur=[A(1,1.0)]
f=lambda x:g(x,cur[0])
def change(n): cur[0]=A(1,n*3.0)
""",
    "mutable arg obj w/ list": r"""
class A:
    def __init__(s): s.l=[1.0]
g=jit(lambda x,a:x*sum(a.l))
a=A()
f=lambda x:g(x,a)
def change(n): a.l.append(n*3.0)
""",
    "numpy bool flags/np scalars": r"""
flag=numpy.bool_(True); k=numpy.float32(2)
f=jit(lambda x:x*k if flag else -x)
def change(n):
    global k,flag
    if n==1: k=numpy.float64(2.5)
    if n==2: flag=numpy.bool_(False)
""",
    "inf recursion fn": r"""
K=1.0
def rec(x,n): return x*K if n==0 else rec(x+K,n-1)
f=jit(lambda x:rec(x,3))
def change(n):
    global K
    K=n*2.0
""",
    "stored dict.get": r"""
d={'a':1.0}
get=d.get
f=jit(lambda x:x*get('a',2.0)*get('b',1.0))
def change(n): d['b']=n*2.0
""",
    "attrgetter": r"""
import operator
get=operator.attrgetter('inner.k'); run=operator.methodcaller('go',2.0)
class A:
    k=1.0
    def go(s,y): return s.j*y
a=A(); a.j=1.0; a.inner=A()
f=jit(lambda x:x*get(a)*run(a))
def change(n):
    if n==1: a.inner.k=3.0
    else: a.j=n*2.0
""",
    "singledispatch": r"""
K=1.0
@functools.singledispatch
def h(v,x): return x
@h.register
def _(v: float,x): return x*K
f=jit(lambda x:h(2.0,x))
def change(n):
    global K
    K=n*3.0
""",
}


def runs_of(source, xp, jit):
    """Return what a program's calls return, and after which the function had run again."""
    runs = []

    def counted(function):
        def run(*args):
            runs.append(1)
            return function(*args)

        return jit(run)

    program = types.ModuleType("program")
    names = vars(program)
    names |= {"np": xp, "numpy": np, "jit": counted, "collections": collections, "enum": enum,
              "functools": functools, "types": types}
    exec(source, names)
    found, last = [], []
    for n in range(4):
        if n:
            names["change"](n)
        for _ in range(4):
            before = len(runs)
            found.append(float(np.asarray(names["f"](xp.ones(2)))[0]))
        last.append(len(runs) - before)
    return found, last


@pytest.mark.sampled(4)
@pytest.mark.compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_behind_names_is_what_is_there(name):
    found, last = runs_of(PROGRAMS[name], ta, ta.jit)
    expected, _ = runs_of(PROGRAMS[name], np, lambda function: function)
    assert found == pytest.approx(expected, rel=1e-13)
    assert last == [0] * 4  # once recorded, it is not run again


def test_what_is_changed_at_every_call_is_refused_and_put_back():
    seen, memo, holder = {"n": 0}, {}, types.SimpleNamespace(last=None, table=np.zeros(2))

    def grows(x):
        memo[len(memo)] = 2.0
        return x * len(memo)

    def item(x):
        seen["n"] += 1
        return x * seen["n"]

    def attribute(x):
        holder.last = [1.0]
        return x * holder.last[0]

    def memory(x):
        holder.table[0] += 1
        return x * holder.table[0]

    for function, name in ((grows, "memo"), (item, r"seen\['n'\]"), (attribute, "holder.last"),
                           (memory, "holder.table")):
        with pytest.raises(TypeError, match=rf"(binds|changes) {name}"):
            ta.jit(function)(ta.ones(2))
    assert seen == {"n": 0} and memo == {} and holder.last is None
    assert holder.table.tolist() == [0, 0]


def test_a_list_that_is_only_written_into_is_no_concern():
    log, read = [], []

    @ta.jit
    def work(x):
        log.append(x.shape)
        return x * 2

    for _ in range(3):
        work(ta.ones(2))
    assert log == [(2,)]
    with pytest.raises(TypeError, match="changes read"):
        ta.jit(lambda x: (read.append(1), x * len(read))[1])(ta.ones(2))
    assert read == []


count, squares = itertools.count(), (k * k for k in range(99))
ours, theirs, drawn = np.random.default_rng(0), random.Random(0), random.Random(0).random


next(squares)  # it stands where it will stand again


@pytest.mark.parametrize("draw", [
    lambda x: x * next(count), lambda x: x * next(squares), lambda x: x * ours.normal(),
    lambda x: x * theirs.random(), lambda x: x * drawn(), lambda x: x * random.random(),
    lambda x: x * np.random.random(),
], ids=range(7))  # fmt: skip
def test_what_is_drawn_from_iterators_and_generators_is_refused(draw):
    with pytest.raises(TypeError, match="takes the next of"):
        ta.jit(draw)(ta.ones(2))


@pytest.mark.parametrize("array", [
    np.zeros((300, 400))[::2, ::-1], np.zeros((), "f4"), np.zeros(3, object),
    np.zeros(70_000, "c16"), np.array(["a", "b"]), np.zeros(4, "i2").reshape(2, 2).T,
    np.asfortranarray(np.zeros((200, 300))),
], ids=range(7))  # fmt: skip
def test_small_changes_of_numpys_arrays_of_any_kind_are_seen(array):
    runs = []

    @ta.jit
    def work(x):
        runs.append(1)
        return x * array.size

    for k in (1, 2):
        for _ in range(3):
            work(ta.ones(2))
        assert len(runs) == k
        array[(-1,) * array.ndim] = "cd"[k - 1] if array.dtype.kind == "U" else (
            array[(-1,) * array.ndim] + k)


def test_methods_look_at_their_own_object():
    class Model:
        def __init__(self, k):
            self.k = k

        def scale(self, x):
            return x * self.k

        @ta.jit
        def step(self, x):
            return self.scale(x) + self.k

    models = [Model(1.0), Model(2.0)]
    for k in (1.0, 5.0, 7.0, 7.0):
        models[0].k = k
        assert models[0].step(ta.ones(2)).tolist() == [2 * k] * 2
        assert models[1].step(ta.ones(2)).tolist() == [4.0] * 2
