<?php
// What programs do with beanstalkd through Laravel's queue, Symfony's Messenger and
// Pheanstalk, as Debian packages them: frameworks.php PORT. Prints a line for each test:
// whether it passes, and its name.

$share = '/usr/share/php';
require "$share/Pheanstalk/autoload.php";
require "$share/Illuminate/autoload.php";
require "$share/Symfony/Component/Messenger/autoload.php";
require "$share/Symfony/Component/Messenger/Bridge/Beanstalkd/autoload.php";

use Illuminate\Container\Container;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Events\Dispatcher;
use Illuminate\Queue\Capsule\Manager;
use Illuminate\Queue\Connectors\BeanstalkdConnector;
use Illuminate\Queue\Worker;
use Illuminate\Queue\WorkerOptions;
use Pheanstalk\Pheanstalk;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\Messenger\Bridge\Beanstalkd\Transport\BeanstalkdTransportFactory;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\EventListener\StopWorkerOnMessageLimitListener;
use Symfony\Component\Messenger\Handler\HandlersLocator;
use Symfony\Component\Messenger\MessageBus;
use Symfony\Component\Messenger\Middleware\HandleMessageMiddleware;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;

error_reporting(E_ALL & ~E_DEPRECATED);
$port = (int) $argv[1];
$client = fn() => Pheanstalk::create('127.0.0.1', $port);

function same($found, $expected)
{
    if ($found !== $expected) {
        throw new Exception(var_export($found, true) . ' is not ' . var_export($expected, true));
    }
}

// A job of Laravel fails as often as its data says.
class Mail
{
    public static $attempts = [];

    public function fire($job, $failures)
    {
        self::$attempts[] = $job->attempts();
        if ($job->attempts() <= $failures) {
            throw new Exception('failed');
        }
        $job->delete();
    }

    public function failed() {}
}

class Silent implements ExceptionHandler
{
    public function report(Throwable $e) {}
    public function shouldReport(Throwable $e) { return false; }
    public function render($request, Throwable $e) {}
    public function renderForConsole($output, Throwable $e) {}
}

class Greeting
{
    public function __construct(public string $text) {}
}

$laravel = function ($tube, $work) use ($port) {
    Mail::$attempts = [];
    $container = new Container();
    $container->instance('events', new Dispatcher($container));
    $manager = new Manager($container);
    $manager->addConnector('beanstalkd', fn() => new BeanstalkdConnector());
    $settings = ['driver' => 'beanstalkd', 'host' => '127.0.0.1', 'port' => $port];
    $manager->addConnection($settings + ['queue' => $tube, 'retry_after' => 60, 'block_for' => 0]);
    $worker = new Worker($manager->getQueueManager(), $container['events'], new Silent(), fn() => false);
    $run = fn($tries) => $worker->runNextJob('default', $tube, new WorkerOptions('default', 0, 128, 60, 0, $tries));
    $work($manager->getConnection(), $run);
};

$symfony = function ($tube, $work) use ($port) {
    $factory = new BeanstalkdTransportFactory();
    $dsn = "beanstalkd://127.0.0.1:$port?tube_name=$tube&timeout=0";
    $work($factory->createTransport($dsn, [], new PhpSerializer()));
};

$tests = [
    'laravel: a worker takes a job and deletes it' => fn() => $laravel('mails', function ($queue, $run) {
        $queue->push('Mail', 0);
        same($queue->size(), 1);
        $run(1);
        same(Mail::$attempts, [1]);
        same($queue->pop(), null);
    }),
    'laravel: attempts count until the job succeeds' => fn() => $laravel('2fa-mails', function ($queue, $run) {
        $queue->push('Mail', 2);
        array_map($run, [5, 5, 5]);
        same(Mail::$attempts, [1, 2, 3]);
        same($queue->pop(), null);
    }),
    'laravel: a job that fails too often is deleted' => fn() => $laravel('v1.2', function ($queue, $run) {
        $queue->push('Mail', 9);
        array_map($run, [2, 2, 2]);
        same(Mail::$attempts, [1, 2]);
        same($queue->pop(), null);
    }),
    'laravel: a job for later waits' => fn() => $laravel('later', function ($queue, $run) use ($client) {
        $queue->later(60, 'Mail', 0);
        same($queue->size(), 0);
        $run(1);
        same(Mail::$attempts, []);
        same((int) $client()->statsTube('later')['current-jobs-delayed'], 1);
    }),
    'symfony: a worker handles what was sent' => fn() => $symfony('greetings', function ($transport) {
        $transport->send(new Envelope(new Greeting('hello')));
        $transport->send(new Envelope(new Greeting('again')));
        same($transport->getMessageCount(), 2);
        $heard = [];
        $handlers = [Greeting::class => [function ($greeting) use (&$heard) { $heard[] = $greeting->text; }]];
        $bus = new MessageBus([new HandleMessageMiddleware(new HandlersLocator($handlers))]);
        $events = new EventDispatcher();
        $events->addSubscriber(new StopWorkerOnMessageLimitListener(2));
        (new Symfony\Component\Messenger\Worker([$transport], $bus, $events))->run(['sleep' => 0]);
        same($heard, ['hello', 'again']);
        same($transport->getMessageCount(), 0);
    }),
    'symfony: a delayed message waits, a rejected one is gone' => fn() => $symfony('delays', function ($transport) {
        $transport->send(new Envelope(new Greeting('late'), [new DelayStamp(60000)]));
        $transport->send(new Envelope(new Greeting('now')));
        [$envelope] = $transport->get();
        same($envelope->getMessage()->text, 'now');
        $transport->reject($envelope);
        same($transport->get(), []);
    }),
    'pheanstalk: names from statistics go into commands' => function () use ($client) {
        foreach (['mails', '2fa-mails', 'v1.2', 'null-jobs', 'a;b/c.$_(d)+'] as $name) {
            $job = $client()->useTube($name)->put('x');
            $tube = $client()->statsJob($job)['tube'];
            same($client()->statsTube($tube)['name'], $name);
            same($client()->useTube($tube)->peekReady()->getId(), $job->getId());
            $client()->delete($job);
        }
    },
    'pheanstalk: every reply about a job is read' => function () use ($client) {
        $worker = $client()->watchOnly('life')->useTube('life');
        $job = $worker->put('x', 7, 0, 60);
        same($worker->reserveWithTimeout(0)->getData(), 'x');
        $worker->touch($job);
        $worker->bury($job);
        same($worker->peekBuried()->getId(), $job->getId());
        same($worker->kick(9), 1);
        $worker->pauseTube('life', 60);
        same($worker->reserveWithTimeout(0), null);
        $worker->resumeTube('life');
        $worker->release($worker->reserve(), 9, 60);
        $worker->kickJob($worker->peekDelayed());
        $stats = $worker->statsJob($job);
        $keys = 'id tube state pri age delay ttr time-left file reserves timeouts releases buries kicks';
        same(implode(' ', array_keys($stats->getArrayCopy())), $keys);
        same([$stats->state, $stats->pri, $stats->reserves, $stats->kicks], ['ready', '9', '2', '2']);
        same($worker->listTubesWatched(), ['life']);
        $worker->delete($job);
        same($worker->stats()['current-jobs-buried'], '0');
    },
];
foreach ($tests as $name => $test) {
    try {
        $test();
        echo "ok $name\n";
    } catch (Throwable $e) {
        echo "not ok $name\n";
        fwrite(STDERR, "$name: $e\n");
    }
}
