package peer;

import java.io.IOException;
import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.ha.DefaultHAService;
import org.apache.rocketmq.store.ha.HAService;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;

/**
 * HA services in place of those that a store makes for itself, and the way to put them into it.
 *
 * RocketMQ's own services listen on every interface. The two here differ from them in the address
 * they listen on, and the classic slave knows its master before its client thread starts: told
 * later, it looks for the address only every five seconds.
 */
public final class HaServices {
    private HaServices() {
    }

    public static final class Classic extends DefaultHAService {
        private final String host;
        private final String master;

        public Classic(String host, String master) {
            this.host = host;
            this.master = master;
        }

        @Override
        public void init(DefaultMessageStore store) throws IOException {
            super.init(store);
            bind(acceptSocketService, host, store.getMessageStoreConfig().getHaListenPort());
            if (master != null) {
                updateHaMasterAddress(master);
            }
        }
    }

    public static final class Switching extends AutoSwitchHAService {
        private final String host;

        public Switching(String host) {
            this.host = host;
        }

        @Override
        public void init(DefaultMessageStore store) throws IOException {
            super.init(store);
            bind(acceptSocketService, host, store.getMessageStoreConfig().getHaListenPort());
        }
    }

    /** Puts a service into a store that has been constructed but not loaded. */
    public static void install(DefaultMessageStore store, HAService service) {
        set(store, DefaultMessageStore.class, "haService", service);
    }

    private static void bind(Object acceptService, String host, int port) {
        for (Class<?> type = acceptService.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals("socketAddressListen")) {
                    set(acceptService, type, field.getName(), new InetSocketAddress(host, port));
                    return;
                }
            }
        }
        throw new IllegalStateException("no listening address in " + acceptService.getClass());
    }

    /** Returns a field that has no getter. */
    public static Object get(Object target, Class<?> owner, String name) {
        try {
            Field field = owner.getDeclaredField(name);
            field.setAccessible(true);
            return field.get(target);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("cannot get " + owner.getSimpleName() + "." + name, e);
        }
    }

    /** Replaces a field that has no setter. */
    public static void set(Object target, Class<?> owner, String name, Object value) {
        try {
            Field field = owner.getDeclaredField(name);
            field.setAccessible(true);
            field.set(target, value);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("cannot set " + owner.getSimpleName() + "." + name, e);
        }
    }
}
